package benchmarks;

import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** The job's rows, with serializers of their own: a few primitives a row, no null flags, no boxes. */
final class DisorderTypes {
    private DisorderTypes() {}

    /** One line of input. */
    static final class Reading {
        long sensor;
        long tsMs;
        double value;
    }

    /** What a window of a sensor holds. */
    static final class Totals {
        long readings;
        double total;
    }

    /** One emission of a window; a later one of the same sensor and window replaces it. */
    static final class Result {
        long windowStartMs;
        long sensor;
        long readings;
        double total;
    }

    static final class ReadingSerializer extends FixedSerializer<Reading> {
        static final ReadingSerializer INSTANCE = new ReadingSerializer();

        ReadingSerializer() {
            super(24);
        }

        @Override
        public Reading createInstance() {
            return new Reading();
        }

        @Override
        public Reading copy(Reading from, Reading to) {
            to.sensor = from.sensor;
            to.tsMs = from.tsMs;
            to.value = from.value;
            return to;
        }

        @Override
        public void serialize(Reading row, DataOutputView target) throws IOException {
            target.writeLong(row.sensor);
            target.writeLong(row.tsMs);
            target.writeDouble(row.value);
        }

        @Override
        public Reading deserialize(Reading row, DataInputView source) throws IOException {
            row.sensor = source.readLong();
            row.tsMs = source.readLong();
            row.value = source.readDouble();
            return row;
        }

        @Override
        public TypeSerializerSnapshot<Reading> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Named by checkpoints, hence public and with a constructor that takes nothing. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Reading> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }

    static final class TotalsSerializer extends FixedSerializer<Totals> {
        static final TotalsSerializer INSTANCE = new TotalsSerializer();

        TotalsSerializer() {
            super(16);
        }

        @Override
        public Totals createInstance() {
            return new Totals();
        }

        @Override
        public Totals copy(Totals from, Totals to) {
            to.readings = from.readings;
            to.total = from.total;
            return to;
        }

        @Override
        public void serialize(Totals totals, DataOutputView target) throws IOException {
            target.writeLong(totals.readings);
            target.writeDouble(totals.total);
        }

        @Override
        public Totals deserialize(Totals totals, DataInputView source) throws IOException {
            totals.readings = source.readLong();
            totals.total = source.readDouble();
            return totals;
        }

        @Override
        public TypeSerializerSnapshot<Totals> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Named by checkpoints, hence public and with a constructor that takes nothing. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Totals> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }

    static final class ResultSerializer extends FixedSerializer<Result> {
        static final ResultSerializer INSTANCE = new ResultSerializer();

        ResultSerializer() {
            super(32);
        }

        @Override
        public Result createInstance() {
            return new Result();
        }

        @Override
        public Result copy(Result from, Result to) {
            to.windowStartMs = from.windowStartMs;
            to.sensor = from.sensor;
            to.readings = from.readings;
            to.total = from.total;
            return to;
        }

        @Override
        public void serialize(Result result, DataOutputView target) throws IOException {
            target.writeLong(result.windowStartMs);
            target.writeLong(result.sensor);
            target.writeLong(result.readings);
            target.writeDouble(result.total);
        }

        @Override
        public Result deserialize(Result result, DataInputView source) throws IOException {
            result.windowStartMs = source.readLong();
            result.sensor = source.readLong();
            result.readings = source.readLong();
            result.total = source.readDouble();
            return result;
        }

        @Override
        public TypeSerializerSnapshot<Result> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Named by checkpoints, hence public and with a constructor that takes nothing. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Result> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }

    /** What serializers of rows of one length share. */
    abstract static class FixedSerializer<T> extends TypeSerializerSingleton<T> {
        private final int bytes;

        FixedSerializer(int bytes) {
            this.bytes = bytes;
        }

        @Override
        public boolean isImmutableType() {
            return false;
        }

        @Override
        public T copy(T from) {
            return copy(from, createInstance());
        }

        @Override
        public int getLength() {
            return bytes;
        }

        @Override
        public T deserialize(DataInputView source) throws IOException {
            return deserialize(createInstance(), source);
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.write(source, bytes);
        }
    }

    /** The type of a row, which is its class and its serializer. */
    static final class FixedType<T> extends TypeInformation<T> {
        private final Class<T> rowClass;
        private final TypeSerializer<T> serializer;

        FixedType(Class<T> rowClass, TypeSerializer<T> serializer) {
            this.rowClass = rowClass;
            this.serializer = serializer;
        }

        @Override
        public boolean isBasicType() {
            return false;
        }

        @Override
        public boolean isTupleType() {
            return false;
        }

        @Override
        public int getArity() {
            return 1;
        }

        @Override
        public int getTotalFields() {
            return 1;
        }

        @Override
        public Class<T> getTypeClass() {
            return rowClass;
        }

        @Override
        public boolean isKeyType() {
            return false;
        }

        @Override
        public TypeSerializer<T> createSerializer(SerializerConfig config) {
            return serializer;
        }

        @Override
        public String toString() {
            return rowClass.getSimpleName();
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof FixedType && ((FixedType<?>) other).rowClass == rowClass;
        }

        @Override
        public int hashCode() {
            return rowClass.hashCode();
        }

        @Override
        public boolean canEqual(Object other) {
            return other instanceof FixedType;
        }
    }

    static final TypeInformation<Reading> READING = new FixedType<>(Reading.class, ReadingSerializer.INSTANCE);
    static final TypeInformation<Totals> TOTALS = new FixedType<>(Totals.class, TotalsSerializer.INSTANCE);
    static final TypeInformation<Result> RESULT = new FixedType<>(Result.class, ResultSerializer.INSTANCE);
}
