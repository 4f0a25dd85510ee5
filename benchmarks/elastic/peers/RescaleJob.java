package benchmarks;

import benchmarks.DisorderTypes.Reading;
import benchmarks.DisorderTypes.Result;
import benchmarks.DisorderTypes.Totals;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Count and sum per sensor and window over files that go on coming, to be rescaled while it runs. */
public final class RescaleJob {
    private RescaleJob() {}

    /** Takes options as --name value; runs until it is killed. */
    public static void main(String[] arguments) throws Exception {
        MeasuredJob job = new MeasuredJob(arguments);
        StreamExecutionEnvironment flink = job.open();
        plan(flink, job);
        job.run(flink, "rescale", DisorderFiles.ROWS_READ::get, 0);
    }

    private static void plan(StreamExecutionEnvironment flink, MeasuredJob job) {
        FileSource<Reading> files = FileSource.forBulkFileFormat(
                        new DisorderFiles.ReadingsFormat(), new Path("file://" + job.option("input")))
                .setSplitAssigner(DisorderFiles.InOrder::new)
                .monitorContinuously(Duration.ofMillis(200))
                .build();
        // A subtask that has no file at the moment must not hold back the others.
        WatermarkStrategy<Reading> watermark = WatermarkStrategy.<Reading>forBoundedOutOfOrderness(
                        job.millis("delay-ms"))
                .withTimestampAssigner((Reading reading, long before) -> reading.tsMs)
                .withIdleness(Duration.ofMillis(500));
        FileSink<Result> sink = FileSink.forBulkFormat(
                        new Path("file://" + job.option("output")), DisorderFiles.ResultsWriter::new)
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .build();
        // Behind the source: there, each file has a watermark, which goes with it if it is read within a moment.
        flink.fromSource(files, WatermarkStrategy.noWatermarks(), "readings", DisorderTypes.READING)
                .assignTimestampsAndWatermarks(watermark)
                .keyBy(reading -> reading.sensor, Types.LONG)
                .window(TumblingEventTimeWindows.of(job.millis("window-ms")))
                .aggregate(new DisorderJob.CountAndSum(), new Emit(), DisorderTypes.TOTALS, DisorderTypes.RESULT)
                .sinkTo(sink);
    }

    /** Emits a window when it closes. */
    private static final class Emit implements WindowFunction<Totals, Result, Long, TimeWindow> {
        @Override
        public void apply(Long sensor, TimeWindow window, Iterable<Totals> one, Collector<Result> collector) {
            Totals totals = one.iterator().next();
            Result result = new Result();
            result.windowStartMs = window.getStart();
            result.sensor = sensor;
            result.readings = totals.readings;
            result.total = totals.total;
            collector.collect(result);
        }
    }
}
