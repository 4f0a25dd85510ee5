package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** Finds no delegation token, as where none is configured. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    private KafkaTokenUtil$() {}

    public Option<KafkaTokenClusterConf> findMatchingTokenClusterConfig(SparkConf configuration, String servers) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> settings, Option<KafkaTokenClusterConf> cluster) {
        return false;
    }
}
