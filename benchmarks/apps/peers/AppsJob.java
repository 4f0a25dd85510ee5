package benchmarks;

import benchmarks.AppsTypes.Change;
import benchmarks.AppsTypes.Crown;
import benchmarks.AppsTypes.LowWindow;
import benchmarks.AppsTypes.Lows;
import benchmarks.AppsTypes.Row;
import benchmarks.AppsTypes.RowsWriter;
import benchmarks.DisorderTypes.Reading;
import benchmarks.DisorderTypes.Totals;
import java.util.Arrays;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.RichWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Low voltage by sensor, or the warning levels of a vault; or a part of the work, to see what it costs. */
public final class AppsJob {
    private AppsJob() {}

    /** Takes options as --name value; writes what it saw as JSON. */
    public static void main(String[] arguments) throws Exception {
        MeasuredJob job = new MeasuredJob(arguments);
        StreamExecutionEnvironment flink = job.open();
        FileSource<Reading> files = FileSource.forBulkFileFormat(
                        new DisorderFiles.ReadingsFormat(), new Path("file://" + job.option("input")))
                .setSplitAssigner(DisorderFiles.InOrder::new)
                .build();
        WatermarkStrategy<Reading> watermark = WatermarkStrategy.<Reading>forBoundedOutOfOrderness(
                        job.millis("delay-ms"))
                .withTimestampAssigner((reading, before) -> reading.tsMs);
        DataStream<Reading> readings = flink.fromSource(files, watermark, "readings", DisorderTypes.READING);
        switch (job.option("app")) {
            case "low-voltage":
                write(findLowVoltage(byKey(readings), job), job);
                break;
            case "vault":
                write(watchVault(byKey(readings), job), job);
                break;
            case "read":
                write(readings.flatMap((Reading row, Collector<LowWindow> none) -> {}).returns(LowWindow.class), job);
                break;
            case "exchange":
                write(byKey(readings).process(new Forget()), job);
                break;
            default:
                throw new IllegalArgumentException("there is no application " + job.option("app"));
        }
        job.run(flink, job.option("app"), DisorderFiles.ROWS_READ::get, 0);
    }

    private static KeyedStream<Reading, Long> byKey(DataStream<Reading> readings) {
        return readings.keyBy(reading -> reading.sensor, Types.LONG);
    }

    private static SingleOutputStreamOperator<LowWindow> findLowVoltage(
            KeyedStream<Reading, Long> readings, MeasuredJob job) {
        return readings.window(TumblingEventTimeWindows.of(job.millis("window-ms")))
                .allowedLateness(job.millis("lateness-ms"))
                .aggregate(
                        new CountLows(Double.parseDouble(job.option("low-volts"))),
                        new EmitLows(),
                        AppsTypes.LOWS,
                        TypeInformation.of(LowWindow.class));
    }

    private static SingleOutputStreamOperator<Change> watchVault(
            KeyedStream<Reading, Long> readings, MeasuredJob job) {
        return readings.window(TumblingEventTimeWindows.of(job.millis("window-ms")))
                .aggregate(
                        new DisorderJob.CountAndSum(),
                        new Settle(job),
                        DisorderTypes.TOTALS,
                        DisorderTypes.TOTALS,
                        TypeInformation.of(Change.class));
    }

    private static <T extends Row> void write(SingleOutputStreamOperator<T> rows, MeasuredJob job) {
        FileSink<T> sink = FileSink.<T>forBulkFormat(new Path("file://" + job.option("output")), RowsWriter::new)
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .build();
        rows.sinkTo(sink);
    }

    /** Counts in place: a window holds three numbers, however many rows it has. */
    private static final class CountLows implements AggregateFunction<Reading, Lows, Lows> {
        private final double lowVolts;

        CountLows(double lowVolts) {
            this.lowVolts = lowVolts;
        }

        @Override
        public Lows createAccumulator() {
            Lows lows = new Lows();
            lows.lowest = Double.POSITIVE_INFINITY;
            return lows;
        }

        @Override
        public Lows add(Reading reading, Lows lows) {
            lows.readings++;
            if (reading.value < lowVolts) {
                lows.low++;
            }
            if (reading.value < lows.lowest) {
                lows.lowest = reading.value;
            }
            return lows;
        }

        @Override
        public Lows getResult(Lows lows) {
            return lows;
        }

        @Override
        public Lows merge(Lows one, Lows other) {
            one.readings += other.readings;
            one.low += other.low;
            one.lowest = Math.min(one.lowest, other.lowest);
            return one;
        }
    }

    /** Hands out one object again and again: the sink copies its numbers at once. */
    private static final class EmitLows extends RichWindowFunction<Lows, LowWindow, Long, TimeWindow> {
        private transient LowWindow result;

        @Override
        public void open(OpenContext context) {
            result = new LowWindow();
        }

        @Override
        public void apply(Long sensor, TimeWindow window, Iterable<Lows> one, Collector<LowWindow> collector) {
            Lows lows = one.iterator().next();
            if (lows.low == 0) {
                return;
            }
            result.windowStartMs = window.getStart();
            result.sensor = sensor;
            result.readings = lows.readings;
            result.low = lows.low;
            result.lowest = lows.lowest;
            collector.collect(result);
        }
    }

    /** Judges a crown when one of its windows ends: its state lies beside the windows, so there is no second exchange. */
    private static final class Settle extends ProcessWindowFunction<Totals, Change, Long, TimeWindow> {
        private final ValueStateDescriptor<Crown> crowns = new ValueStateDescriptor<>("crown", Crown.class);
        private final double[] driftUm;
        private final double[] umPerMinute;
        private final double leftBelow;
        private final long rateOverMs;
        private transient Change change;

        Settle(MeasuredJob job) {
            driftUm = numbers(job.option("drift-um"));
            umPerMinute = numbers(job.option("um-per-minute"));
            leftBelow = Double.parseDouble(job.option("left-below"));
            rateOverMs = job.millis("rate-over-ms").toMillis();
        }

        @Override
        public void open(OpenContext context) {
            change = new Change();
        }

        @Override
        public void process(Long sensor, Context context, Iterable<Totals> one, Collector<Change> collector)
                throws Exception {
            Totals totals = one.iterator().next();
            double meanUm = totals.total / totals.readings;
            long startMs = context.window().getStart();
            ValueState<Crown> state = context.globalState().getState(crowns);
            Crown crown = state.value();
            if (crown == null) {
                crown = new Crown();
                crown.firstUm = meanUm;
                crown.startsMs = new long[8];
                crown.meansUm = new double[8];
            }
            crown.remember(startMs, meanUm, rateOverMs);
            long passedMs = startMs - crown.startsMs[0];
            double drift = meanUm - crown.firstUm;
            double rate = passedMs >= rateOverMs ? (meanUm - crown.meansUm[0]) / (passedMs / 60_000.0) : 0.0;
            int level = judge(drift, rate, (int) crown.level);
            if (level != crown.level) {
                change.windowStartMs = startMs;
                change.sensor = sensor;
                change.was = crown.level;
                change.level = level;
                change.driftUm = drift;
                change.umPerMinute = rate;
                collector.collect(change);
                crown.level = level;
            }
            state.update(crown);
        }

        private int judge(double drift, double rate, int level) {
            for (int number = driftUm.length; number > 0; number--) {
                double part = number <= level ? leftBelow : 1.0;
                if (drift >= part * driftUm[number - 1] || rate >= part * umPerMinute[number - 1]) {
                    return number;
                }
            }
            return 0;
        }

        private static double[] numbers(String text) {
            return Arrays.stream(text.split(",")).mapToDouble(Double::parseDouble).toArray();
        }
    }

    /** Takes rows that were sent to their key, and keeps nothing. */
    private static final class Forget extends KeyedProcessFunction<Long, Reading, LowWindow> {
        @Override
        public void processElement(Reading reading, Context context, Collector<LowWindow> none) {}
    }
}
