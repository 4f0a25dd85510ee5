package benchmarks;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;

/** A small client of Redis: commands can be sent one behind the other before their answers are read. */
final class YsbRedis implements AutoCloseable {
    private final Socket socket;
    private final OutputStream out;
    private final InputStream in;
    private int unread;

    YsbRedis(String url) throws IOException {
        URI address = URI.create(url);
        socket = new Socket(address.getHost(), address.getPort());
        socket.setTcpNoDelay(true);
        out = new BufferedOutputStream(socket.getOutputStream(), 1 << 16);
        in = new BufferedInputStream(socket.getInputStream(), 1 << 16);
    }

    /** Sends a command and returns its answer: a text, a number as text, or null. */
    String call(String... parts) throws IOException {
        send(parts);
        out.flush();
        while (unread > 1) {
            read();
        }
        return read();
    }

    /** Sends a command; its answer waits for {@link #settle}. */
    void send(String... parts) throws IOException {
        write("*" + parts.length + "\r\n");
        for (String part : parts) {
            byte[] bytes = part.getBytes(StandardCharsets.UTF_8);
            write("$" + bytes.length + "\r\n");
            out.write(bytes);
            write("\r\n");
        }
        unread++;
    }

    /** Reads the answers of all commands that were sent. */
    void settle() throws IOException {
        out.flush();
        while (unread > 0) {
            read();
        }
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }

    private void write(String text) throws IOException {
        out.write(text.getBytes(StandardCharsets.US_ASCII));
    }

    private String read() throws IOException {
        unread--;
        String line = readLine();
        switch (line.charAt(0)) {
            case '+':
            case ':':
                return line.substring(1);
            case '$':
                return readBulk(Integer.parseInt(line.substring(1)));
            default:
                throw new IOException("Redis answered " + line);
        }
    }

    private String readBulk(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        byte[] bytes = in.readNBytes(length + 2);
        return new String(bytes, 0, length, StandardCharsets.UTF_8);
    }

    private String readLine() throws IOException {
        StringBuilder line = new StringBuilder();
        int next = in.read();
        while (next != '\r') {
            if (next < 0) {
                throw new EOFException("Redis closed the connection");
            }
            line.append((char) next);
            next = in.read();
        }
        in.read();
        return line.toString();
    }
}
