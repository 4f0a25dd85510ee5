package anabranch.bench;

import anabranch.bench.YsbTypes.Event;
import anabranch.bench.YsbTypes.Seen;
import anabranch.bench.YsbTypes.View;
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
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The Yahoo Streaming Benchmark: views per campaign in windows, from Kafka, joined with Redis, to Redis. */
public final class YsbJob {
    private static final long SAMPLE_MS = 250;

    private YsbJob() {}

    /** Takes options as --name value; --seconds above 0 lets it run that long, else to the end of the topic. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(configure(options));
        plan(flink, options);

        double seconds = Double.parseDouble(options.get("seconds"));
        List<String> samples = new ArrayList<>();
        long started = System.nanoTime();
        JobClient job = flink.executeAsync("ysb");
        CompletableFuture<?> end = job.getJobExecutionResult();
        boolean running = true;
        while (running) {
            try {
                end.get(SAMPLE_MS, TimeUnit.MILLISECONDS);
                running = false;
            } catch (TimeoutException stillRunning) {
                samples.add(sample(started));
                if (seconds > 0 && System.nanoTime() - started > seconds * 1e9) {
                    job.cancel().get();
                    running = false;
                }
            } catch (ExecutionException failed) {
                failed.printStackTrace();
                System.exit(1);
            }
        }
        String result = String.format(
                "{\"samples\": [%s], \"versions\": {\"flink\": \"%s\", \"java\": \"%s\"}}",
                String.join(", ", samples), EnvironmentInformation.getVersion(), System.getProperty("java.version"));
        Files.writeString(Paths.get(options.get("result")), result);
        // Flink's threads may outlive the job.
        System.exit(0);
    }

    private static String sample(long started) {
        return String.format("[%.3f, %d]", (System.nanoTime() - started) / 1e9, YsbTypes.ROWS_READ.sum());
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
        KafkaSourceBuilder<Event> kafka = KafkaSource.<Event>builder()
                .setBootstrapServers(options.get("servers"))
                .setTopics(options.get("topic"))
                .setGroupId("ysb-flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new YsbTypes.EventReader());
        options.forEach((name, value) -> {
            if (name.startsWith("kafka.")) {
                kafka.setProperty(name.substring("kafka.".length()), value);
            }
        });
        if (Double.parseDouble(options.get("seconds")) <= 0) {
            kafka.setBounded(OffsetsInitializer.latest());
        }
        // The source keeps a watermark a partition, and the slowest counts.
        WatermarkStrategy<Event> watermark = WatermarkStrategy.<Event>forBoundedOutOfOrderness(
                        millis(options, "delay-ms"))
                .withTimestampAssigner((event, before) -> event.eventTime);
        String redis = options.get("redis");
        flink.fromSource(kafka.build(), watermark, "ad-events", TypeInformation.of(Event.class))
                .filter(event -> "view".equals(event.eventType))
                .flatMap(new YsbTypes.JoinWithAds(redis))
                .returns(TypeInformation.of(View.class))
                .keyBy(view -> view.campaign, Types.STRING)
                .window(TumblingEventTimeWindows.of(millis(options, "window-ms")))
                .aggregate(new Count(), new Emit(), Types.LONG, TypeInformation.of(Seen.class))
                .sinkTo(new YsbTypes.ToRedis(redis));
    }

    private static Duration millis(Map<String, String> options, String name) {
        return Duration.ofMillis(Long.parseLong(options.get(name)));
    }

    private static final class Count implements AggregateFunction<View, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(View view, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    private static final class Emit implements WindowFunction<Long, Seen, String, TimeWindow> {
        @Override
        public void apply(String campaign, TimeWindow window, Iterable<Long> counts, Collector<Seen> collector) {
            Seen seen = new Seen();
            seen.campaign = campaign;
            seen.windowStart = window.getStart();
            seen.count = counts.iterator().next();
            collector.collect(seen);
        }
    }
}
