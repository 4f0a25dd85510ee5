package benchmarks;

import benchmarks.YsbTypes.Event;
import benchmarks.YsbTypes.Seen;
import benchmarks.YsbTypes.View;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The Yahoo Streaming Benchmark: views per campaign in windows, from Kafka, joined with Redis, to Redis. */
public final class YsbJob {
    private YsbJob() {}

    /** Takes options as --name value; --seconds above 0 lets it run that long, else to the end of the topic. */
    public static void main(String[] arguments) throws Exception {
        MeasuredJob job = new MeasuredJob(arguments);
        StreamExecutionEnvironment flink = job.open();
        plan(flink, job);
        job.run(flink, "ysb", YsbTypes.ROWS_READ::sum, Double.parseDouble(job.option("seconds")));
    }

    private static void plan(StreamExecutionEnvironment flink, MeasuredJob job) {
        KafkaSourceBuilder<Event> kafka = KafkaSource.<Event>builder()
                .setBootstrapServers(job.option("servers"))
                .setTopics(job.option("topic"))
                .setGroupId("ysb-flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new YsbTypes.EventReader());
        job.optionsOf("kafka.").forEach(kafka::setProperty);
        if (Double.parseDouble(job.option("seconds")) <= 0) {
            kafka.setBounded(OffsetsInitializer.latest());
        }
        // The source keeps a watermark a partition, and the slowest counts.
        WatermarkStrategy<Event> watermark = WatermarkStrategy.<Event>forBoundedOutOfOrderness(
                        job.millis("delay-ms"))
                .withTimestampAssigner((event, before) -> event.eventTime);
        String redis = job.option("redis");
        flink.fromSource(kafka.build(), watermark, "ad-events", TypeInformation.of(Event.class))
                .filter(event -> "view".equals(event.eventType))
                .flatMap(new YsbTypes.JoinWithAds(redis))
                .returns(TypeInformation.of(View.class))
                .keyBy(view -> view.campaign, Types.STRING)
                .window(TumblingEventTimeWindows.of(job.millis("window-ms")))
                .aggregate(new Count(), new Emit(), Types.LONG, TypeInformation.of(Seen.class))
                .sinkTo(new YsbTypes.ToRedis(redis));
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
