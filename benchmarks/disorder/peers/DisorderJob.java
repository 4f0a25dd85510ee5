package benchmarks;

import benchmarks.DisorderTypes.Reading;
import benchmarks.DisorderTypes.Result;
import benchmarks.DisorderTypes.Totals;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.windowing.RichWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Count and sum per sensor and window with a watermark a subtask; a late row fires its window again. */
public final class DisorderJob {
    private DisorderJob() {}

    /** Takes options as --name value; writes what it saw as JSON. */
    public static void main(String[] arguments) throws Exception {
        MeasuredJob job = new MeasuredJob(arguments);
        StreamExecutionEnvironment flink = job.open();
        plan(flink, job);
        job.run(flink, "disorder", DisorderFiles.ROWS_READ::get, 0);
    }

    private static void plan(StreamExecutionEnvironment flink, MeasuredJob job) {
        FileSource<Reading> files = FileSource.forBulkFileFormat(
                        new DisorderFiles.ReadingsFormat(), new Path("file://" + job.option("input")))
                .setSplitAssigner(DisorderFiles.InOrder::new)
                .build();
        WatermarkStrategy<Reading> watermark = WatermarkStrategy.<Reading>forBoundedOutOfOrderness(
                        job.millis("delay-ms"))
                .withTimestampAssigner((reading, before) -> reading.tsMs);
        FileSink<Result> sink = FileSink.forBulkFormat(
                        new Path("file://" + job.option("output")), DisorderFiles.ResultsWriter::new)
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .build();
        flink.fromSource(files, watermark, "readings", DisorderTypes.READING)
                .keyBy(reading -> reading.sensor, Types.LONG)
                .window(TumblingEventTimeWindows.of(job.millis("window-ms")))
                .allowedLateness(job.millis("lateness-ms"))
                .aggregate(new CountAndSum(), new Emit(), DisorderTypes.TOTALS, DisorderTypes.RESULT)
                .sinkTo(sink);
    }

    /** Adds up in place: a window holds two numbers, however many rows it has. */
    static final class CountAndSum implements AggregateFunction<Reading, Totals, Totals> {
        @Override
        public Totals createAccumulator() {
            return new Totals();
        }

        @Override
        public Totals add(Reading reading, Totals totals) {
            totals.readings++;
            totals.total += reading.value;
            return totals;
        }

        @Override
        public Totals getResult(Totals totals) {
            return totals;
        }

        @Override
        public Totals merge(Totals one, Totals other) {
            one.readings += other.readings;
            one.total += other.total;
            return one;
        }
    }

    /** Hands out one object again and again: the sink copies its numbers at once. */
    private static final class Emit extends RichWindowFunction<Totals, Result, Long, TimeWindow> {
        private transient Result result;

        @Override
        public void open(OpenContext context) {
            result = new Result();
        }

        @Override
        public void apply(Long sensor, TimeWindow window, Iterable<Totals> one, Collector<Result> collector) {
            Totals totals = one.iterator().next();
            result.windowStartMs = window.getStart();
            result.sensor = sensor;
            result.readings = totals.readings;
            result.total = totals.total;
            collector.collect(result);
        }
    }
}
