package benchmarks;

import benchmarks.DisorderTypes.FixedSerializer;
import benchmarks.DisorderTypes.FixedType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.flink.api.common.serialization.BulkWriter;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.fs.FSDataOutputStream;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** What the applications keep of a window and of a sensor, and what they emit. */
public final class AppsTypes {
    private AppsTypes() {}

    /** What a window of a sensor holds. */
    static final class Lows {
        long readings;
        long low;
        double lowest;
    }

    /** What is known of a crown: its first mean, its level, and its means of late, the oldest first. */
    public static final class Crown {
        public double firstUm;
        public long level;
        public int count;
        public long[] startsMs;
        public double[] meansUm;

        /** Adds a mean, and forgets those that are older than the newest that is old enough. */
        void remember(long startMs, double meanUm, long rateOverMs) {
            if (count == startsMs.length) {
                startsMs = java.util.Arrays.copyOf(startsMs, 2 * count);
                meansUm = java.util.Arrays.copyOf(meansUm, 2 * count);
            }
            startsMs[count] = startMs;
            meansUm[count] = meanUm;
            count++;
            int old = 0;
            while (old + 1 < count && startsMs[old + 1] <= startMs - rateOverMs) {
                old++;
            }
            System.arraycopy(startsMs, old, startsMs, 0, count - old);
            System.arraycopy(meansUm, old, meansUm, 0, count - old);
            count -= old;
        }
    }

    /** What is emitted: numbers of eight bytes each. */
    public interface Row {
        void put(ByteBuffer target);
    }

    /** A window in which a sensor was low; a later one of the same sensor and window replaces it. */
    public static final class LowWindow implements Row {
        public long windowStartMs;
        public long sensor;
        public long readings;
        public long low;
        public double lowest;

        @Override
        public void put(ByteBuffer target) {
            target.putLong(windowStartMs).putLong(sensor).putLong(readings).putLong(low).putDouble(lowest);
        }
    }

    /** A change of a crown's level. */
    public static final class Change implements Row {
        public long windowStartMs;
        public long sensor;
        public long was;
        public long level;
        public double driftUm;
        public double umPerMinute;

        @Override
        public void put(ByteBuffer target) {
            target.putLong(windowStartMs).putLong(sensor).putLong(was).putLong(level);
            target.putDouble(driftUm).putDouble(umPerMinute);
        }
    }

    /** Writes rows as little-endian numbers, many at a time. */
    static final class RowsWriter<T extends Row> implements BulkWriter<T> {
        private static final int MOST_ROW_BYTES = 64;
        private final FSDataOutputStream file;
        private final ByteBuffer waiting = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);

        RowsWriter(FSDataOutputStream file) {
            this.file = file;
        }

        @Override
        public void addElement(T row) throws IOException {
            if (waiting.remaining() < MOST_ROW_BYTES) {
                flush();
            }
            row.put(waiting);
        }

        @Override
        public void flush() throws IOException {
            file.write(waiting.array(), 0, waiting.position());
            waiting.clear();
        }

        @Override
        public void finish() throws IOException {
            flush();
        }
    }

    static final class LowsSerializer extends FixedSerializer<Lows> {
        static final LowsSerializer INSTANCE = new LowsSerializer();

        LowsSerializer() {
            super(24);
        }

        @Override
        public Lows createInstance() {
            return new Lows();
        }

        @Override
        public Lows copy(Lows from, Lows to) {
            to.readings = from.readings;
            to.low = from.low;
            to.lowest = from.lowest;
            return to;
        }

        @Override
        public void serialize(Lows lows, DataOutputView target) throws IOException {
            target.writeLong(lows.readings);
            target.writeLong(lows.low);
            target.writeDouble(lows.lowest);
        }

        @Override
        public Lows deserialize(Lows lows, DataInputView source) throws IOException {
            lows.readings = source.readLong();
            lows.low = source.readLong();
            lows.lowest = source.readDouble();
            return lows;
        }

        @Override
        public TypeSerializerSnapshot<Lows> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Named by checkpoints, hence public and with a constructor that takes nothing. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Lows> {
            public Snapshot() {
                super(() -> INSTANCE);
            }
        }
    }

    static final TypeInformation<Lows> LOWS = new FixedType<>(Lows.class, LowsSerializer.INSTANCE);
}
