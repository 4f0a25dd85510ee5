package anabranch.bench;

import anabranch.bench.DisorderTypes.Reading;
import anabranch.bench.DisorderTypes.Result;
import anabranch.bench.DisorderTypes.Totals;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.windowing.RichWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Count and sum per sensor and window with a watermark a subtask; a late row fires its window again. */
public final class DisorderJob {
    private static final long SAMPLE_MS = 250;

    private DisorderJob() {}

    /** Takes options as --name value; writes what it saw as JSON. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(configure(options));
        plan(flink, options);

        List<String> samples = new ArrayList<>();
        long started = System.nanoTime();
        CompletableFuture<?> end = flink.executeAsync("disorder").getJobExecutionResult();
        boolean running = true;
        while (running) {
            try {
                end.get(SAMPLE_MS, TimeUnit.MILLISECONDS);
                running = false;
            } catch (TimeoutException stillRunning) {
                samples.add(sample(started));
            } catch (ExecutionException failed) {
                failed.printStackTrace();
                System.exit(1);
            }
        }
        String result = String.format(
                "{\"samples\": [%s], \"job_seconds\": %.3f, \"versions\": {\"flink\": \"%s\", \"java\": \"%s\"}}",
                String.join(", ", samples),
                (System.nanoTime() - started) / 1e9,
                EnvironmentInformation.getVersion(),
                System.getProperty("java.version"));
        Files.writeString(Paths.get(options.get("result")), result);
        // Flink's threads may outlive the job.
        System.exit(0);
    }

    private static String sample(long started) {
        return String.format("[%.3f, %d]", (System.nanoTime() - started) / 1e9, DisorderFiles.ROWS_READ.get());
    }

    private static Configuration configure(Map<String, String> options) {
        Configuration configuration = new Configuration();
        options.forEach((name, value) -> {
            if (name.startsWith("flink.")) {
                configuration.setString(name.substring("flink.".length()), value);
            }
        });
        configuration.setString("execution.checkpointing.dir", "file://" + options.get("checkpoint"));
        return configuration;
    }

    private static void plan(StreamExecutionEnvironment flink, Map<String, String> options) {
        FileSource<Reading> files = FileSource.forBulkFileFormat(
                        new DisorderFiles.ReadingsFormat(), new Path("file://" + options.get("input")))
                .setSplitAssigner(DisorderFiles.InOrder::new)
                .build();
        WatermarkStrategy<Reading> watermark = WatermarkStrategy.<Reading>forBoundedOutOfOrderness(
                        millis(options, "delay-ms"))
                .withTimestampAssigner((reading, before) -> reading.tsMs);
        FileSink<Result> sink = FileSink.forBulkFormat(
                        new Path("file://" + options.get("output")), DisorderFiles.ResultsWriter::new)
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .build();
        flink.fromSource(files, watermark, "readings", DisorderTypes.READING)
                .keyBy(reading -> reading.sensor, Types.LONG)
                .window(TumblingEventTimeWindows.of(millis(options, "window-ms")))
                .allowedLateness(millis(options, "lateness-ms"))
                .aggregate(new CountAndSum(), new Emit(), DisorderTypes.TOTALS, DisorderTypes.RESULT)
                .sinkTo(sink);
    }

    private static Duration millis(Map<String, String> options, String name) {
        return Duration.ofMillis(Long.parseLong(options.get(name)));
    }

    /** Adds up in place: a window holds two numbers, however many rows it has. */
    private static final class CountAndSum implements AggregateFunction<Reading, Totals, Totals> {
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
