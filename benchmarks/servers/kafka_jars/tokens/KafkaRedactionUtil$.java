package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** Shows nothing of the settings. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    private KafkaRedactionUtil$() {}

    @SuppressWarnings("unchecked")
    public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> settings) {
        return (Seq<Tuple2<String, String>>) (Seq<?>) scala.collection.immutable.Nil$.MODULE$;
    }
}
