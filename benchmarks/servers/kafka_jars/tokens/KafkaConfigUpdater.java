package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.collection.Iterator;

/** Kafka settings on their way to a client that needs no delegation token. */
public final class KafkaConfigUpdater {
    private final Map<String, Object> settings = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        for (Iterator<scala.Tuple2<String, Object>> rest = given.iterator(); rest.hasNext(); ) {
            scala.Tuple2<String, Object> setting = rest.next();
            settings.put(setting._1(), setting._2());
        }
    }

    public KafkaConfigUpdater set(String name, Object value) {
        settings.put(name, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String name, Object value) {
        settings.putIfAbsent(name, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<KafkaTokenClusterConf> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return settings;
    }
}
