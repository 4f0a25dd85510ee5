package benchmarks;

import benchmarks.DisorderTypes.Reading;
import benchmarks.DisorderTypes.Result;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.serialization.BulkWriter;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.FileSplitAssigner;
import org.apache.flink.connector.file.src.reader.BulkFormat;
import org.apache.flink.connector.file.src.util.CheckpointedPosition;
import org.apache.flink.connector.file.src.util.MutableRecordAndPosition;
import org.apache.flink.connector.file.src.util.Pool;
import org.apache.flink.connector.file.src.util.RecordAndPosition;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.FSDataOutputStream;

/** How the job reads and writes: CSV lines parsed from bytes without an object a row, results as plain bytes. */
final class DisorderFiles {
    /** Rows that the source has handed on so far. */
    static final AtomicLong ROWS_READ = new AtomicLong();

    private DisorderFiles() {}

    /** Hands files to readers in the order of their names, so that both readers stand at the same time. */
    static final class InOrder implements FileSplitAssigner {
        private final PriorityQueue<FileSourceSplit> waiting =
                new PriorityQueue<>(Comparator.comparing((FileSourceSplit split) -> split.path().toString()));

        InOrder(Collection<FileSourceSplit> splits) {
            waiting.addAll(splits);
        }

        @Override
        public Optional<FileSourceSplit> getNext(String host) {
            return Optional.ofNullable(waiting.poll());
        }

        @Override
        public void addSplits(Collection<FileSourceSplit> splits) {
            waiting.addAll(splits);
        }

        @Override
        public Collection<FileSourceSplit> remainingSplits() {
            return new ArrayList<>(waiting);
        }
    }

    /** Lines of sensor,ts,value below a header: whole numbers, and decimals without an exponent. */
    static final class ReadingsFormat implements BulkFormat<Reading, FileSourceSplit> {
        @Override
        public Reader<Reading> createReader(Configuration config, FileSourceSplit split) throws IOException {
            LinesReader reader = new LinesReader(split.path().getFileSystem().open(split.path()));
            reader.skipLines(1);
            return reader;
        }

        @Override
        public Reader<Reading> restoreReader(Configuration config, FileSourceSplit split) throws IOException {
            CheckpointedPosition position = split.getReaderPosition().orElse(null);
            if (position == null) {
                return createReader(config, split);
            }
            LinesReader reader = new LinesReader(split.path().getFileSystem().open(split.path()));
            reader.seek(position.getOffset());
            reader.skipLines(position.getRecordsAfterOffset());
            return reader;
        }

        @Override
        public boolean isSplittable() {
            return false;
        }

        @Override
        public TypeInformation<Reading> getProducedType() {
            return DisorderTypes.READING;
        }
    }

    /** Reads blocks of whole lines in the fetching thread; the task's thread parses them, into one object a block. */
    private static final class LinesReader implements BulkFormat.Reader<Reading> {
        private static final int BLOCK_BYTES = 1 << 18;
        private static final int BLOCKS = 2;
        private final FSDataInputStream file;
        private final Pool<Block> blocks = new Pool<>(BLOCKS);
        private byte[] cutLine = new byte[0];
        private long offset;
        private long linesToSkip;

        LinesReader(FSDataInputStream file) {
            this.file = file;
            for (int count = 0; count < BLOCKS; count++) {
                blocks.add(new Block(new byte[BLOCK_BYTES], blocks.recycler()));
            }
        }

        void seek(long offset) throws IOException {
            file.seek(offset);
            this.offset = offset;
        }

        void skipLines(long lines) {
            linesToSkip = lines;
        }

        @Override
        public BulkFormat.RecordIterator<Reading> readBatch() throws IOException {
            Block block;
            try {
                block = blocks.pollEntry();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IOException(interrupted);
            }
            byte[] bytes = block.bytes;
            System.arraycopy(cutLine, 0, bytes, 0, cutLine.length);
            int held = cutLine.length;
            int read;
            while (held < bytes.length && (read = file.read(bytes, held, bytes.length - held)) > 0) {
                held += read;
            }
            if (held == 0) {
                blocks.recycler().recycle(block);
                return null;
            }
            int end = held;
            while (end > 0 && bytes[end - 1] != '\n') {
                end--;
            }
            if (end == 0) {
                throw new IOException("a line has no end, or is longer than " + BLOCK_BYTES + " bytes");
            }
            cutLine = Arrays.copyOfRange(bytes, end, held);
            int start = 0;
            for (; linesToSkip > 0 && start < end; linesToSkip--) {
                while (bytes[start++] != '\n') {}
            }
            block.take(start, end, offset + start);
            offset += end;
            return block;
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    /** Some lines, parsed one at a time when the task asks for them. */
    private static final class Block implements BulkFormat.RecordIterator<Reading> {
        final byte[] bytes;
        private final Pool.Recycler<Block> recycler;
        private final MutableRecordAndPosition<Reading> position = new MutableRecordAndPosition<>();
        private final Reading row = new Reading();
        private int at;
        private int end;
        private int rows;

        Block(byte[] bytes, Pool.Recycler<Block> recycler) {
            this.bytes = bytes;
            this.recycler = recycler;
        }

        /** Stands at the first of some lines, which begin at an offset of the file. */
        void take(int start, int end, long offset) {
            this.at = start;
            this.end = end;
            this.rows = 0;
            position.set(null, offset, 0);
        }

        @Override
        public RecordAndPosition<Reading> next() {
            if (at >= end) {
                return null;
            }
            row.sensor = parseWhole();
            row.tsMs = parseWhole();
            row.value = parseDecimal();
            position.setNext(row);
            rows++;
            return position;
        }

        private long parseWhole() {
            boolean negative = bytes[at] == '-';
            if (negative) {
                at++;
            }
            long number = 0;
            byte next;
            while ((next = bytes[at++]) != ',') {
                number = number * 10 + (next - '0');
            }
            return negative ? -number : number;
        }

        private double parseDecimal() {
            boolean negative = bytes[at] == '-';
            if (negative) {
                at++;
            }
            long digits = 0;
            long scale = 0;
            byte next;
            while ((next = bytes[at++]) != '\n') {
                if (next == '.') {
                    scale = 1;
                } else {
                    digits = digits * 10 + (next - '0');
                    scale *= 10;
                }
            }
            double value = scale == 0 ? digits : (double) digits / scale;
            return negative ? -value : value;
        }

        @Override
        public void releaseBatch() {
            ROWS_READ.addAndGet(rows);
            recycler.recycle(this);
        }
    }

    /** Writes a result as four little-endian numbers of eight bytes, many at a time. */
    static final class ResultsWriter implements BulkWriter<Result> {
        private final FSDataOutputStream file;
        private final ByteBuffer waiting = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);

        ResultsWriter(FSDataOutputStream file) {
            this.file = file;
        }

        @Override
        public void addElement(Result result) throws IOException {
            if (waiting.remaining() < 32) {
                flush();
            }
            waiting.putLong(result.windowStartMs);
            waiting.putLong(result.sensor);
            waiting.putLong(result.readings);
            waiting.putDouble(result.total);
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
}
