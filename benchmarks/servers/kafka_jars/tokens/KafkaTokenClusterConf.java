package org.apache.spark.kafka010;

/** Named by signatures only: there are no delegation tokens here. */
public final class KafkaTokenClusterConf {
    private KafkaTokenClusterConf() {}
}
