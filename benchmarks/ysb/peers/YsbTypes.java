package benchmarks;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.util.Collector;

/** Events, their reading, the join with ads, and the results of the Yahoo Streaming Benchmark. */
final class YsbTypes {
    /** Events that were read by all subtasks. */
    static final LongAdder ROWS_READ = new LongAdder();

    private YsbTypes() {}

    /** What the query needs of an event. */
    public static final class Event {
        public String adId;
        public String eventType;
        public long eventTime;
    }

    /** A view of an ad of a campaign. */
    public static final class View {
        public String campaign;
        public long eventTime;
    }

    /** How often the ads of a campaign were seen in a window. */
    public static final class Seen {
        public String campaign;
        public long windowStart;
        public long count;
    }

    /** Reads three of the seven fields, token by token: no tree is built, and the rest is skipped. */
    static final class EventReader extends AbstractDeserializationSchema<Event> {
        private transient JsonFactory json;

        @Override
        public void open(InitializationContext context) {
            json = new JsonFactory();
        }

        @Override
        public Event deserialize(byte[] message) throws IOException {
            Event event = new Event();
            try (JsonParser parser = json.createParser(message)) {
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String field = parser.currentName();
                    parser.nextToken();
                    switch (field) {
                        case "ad_id":
                            event.adId = parser.getText();
                            break;
                        case "event_type":
                            event.eventType = parser.getText();
                            break;
                        case "event_time":
                            event.eventTime = Long.parseLong(parser.getText());
                            break;
                        default:
                            parser.skipChildren();
                    }
                }
            }
            ROWS_READ.increment();
            return event;
        }
    }

    /** Asks Redis once for each ad, and keeps what it says. */
    static final class JoinWithAds extends RichFlatMapFunction<Event, View> {
        private final String redisUrl;
        private transient YsbRedis redis;
        private transient Map<String, String> campaignOfAd;

        JoinWithAds(String redisUrl) {
            this.redisUrl = redisUrl;
        }

        @Override
        public void open(OpenContext context) throws IOException {
            redis = new YsbRedis(redisUrl);
            campaignOfAd = new HashMap<>();
        }

        @Override
        public void flatMap(Event event, Collector<View> collector) throws IOException {
            String campaign = campaignOfAd.get(event.adId);
            if (campaign == null) {
                campaign = redis.call("GET", event.adId);
                if (campaign == null) {
                    return;
                }
                campaignOfAd.put(event.adId, campaign);
            }
            View view = new View();
            view.campaign = campaign;
            view.eventTime = event.eventTime;
            collector.collect(view);
        }

        @Override
        public void close() throws IOException {
            if (redis != null) {
                redis.close();
            }
        }
    }

    /** Writes windows to Redis as soon as a watermark has closed them, all of one watermark at once. */
    static final class ToRedis implements Sink<Seen> {
        private final String redisUrl;

        ToRedis(String redisUrl) {
            this.redisUrl = redisUrl;
        }

        @Override
        public SinkWriter<Seen> createWriter(WriterInitContext context) throws IOException {
            return new Writer(new YsbRedis(redisUrl));
        }
    }

    private static final class Writer implements SinkWriter<Seen> {
        private final YsbRedis redis;
        private final List<Seen> waiting = new ArrayList<>();

        Writer(YsbRedis redis) {
            this.redis = redis;
        }

        @Override
        public void write(Seen seen, Context context) {
            waiting.add(seen);
        }

        @Override
        public void writeWatermark(Watermark watermark) throws IOException {
            flush(false);
        }

        @Override
        public void flush(boolean endOfInput) throws IOException {
            for (Seen seen : waiting) {
                String start = Long.toString(seen.windowStart);
                String windows = name(seen.campaign, "windows");
                String window = name(seen.campaign, start);
                if ("1".equals(redis.call("HSETNX", seen.campaign, start, window))) {
                    redis.send("HSETNX", seen.campaign, "windows", windows);
                    redis.send("LPUSH", windows, start);
                }
                String now = Long.toString(System.currentTimeMillis());
                redis.send("HSET", window, "seen_count", Long.toString(seen.count), "time_updated", now);
            }
            if (!waiting.isEmpty()) {
                redis.settle();
                waiting.clear();
            }
        }

        @Override
        public void close() throws IOException {
            redis.close();
        }

        private static String name(String campaign, String window) {
            byte[] text = (campaign + " " + window).getBytes(StandardCharsets.UTF_8);
            return UUID.nameUUIDFromBytes(text).toString();
        }
    }
}
