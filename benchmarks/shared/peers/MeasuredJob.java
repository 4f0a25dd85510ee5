package benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongSupplier;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job of a bench: its options are --name value, and it notes how many rows were read while it runs. */
final class MeasuredJob {
    private static final long SAMPLE_MS = 250;

    private final Map<String, String> options = new HashMap<>();

    MeasuredJob(String[] arguments) {
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
    }

    String option(String name) {
        return options.get(name);
    }

    Duration millis(String name) {
        return Duration.ofMillis(Long.parseLong(options.get(name)));
    }

    /** Returns the options that begin with a prefix, without it. */
    Map<String, String> optionsOf(String prefix) {
        Map<String, String> found = new HashMap<>();
        options.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }

    /** Returns Flink with the settings that options beginning with flink. name. */
    StreamExecutionEnvironment open() {
        Configuration configuration = new Configuration();
        optionsOf("flink.").forEach(configuration::setString);
        configuration.setString("execution.checkpointing.dir", "file://" + option("checkpoint"));
        return StreamExecutionEnvironment.getExecutionEnvironment(configuration);
    }

    /** Runs what was planned to its end, or for so many seconds if they are above 0; then ends this process. */
    void run(StreamExecutionEnvironment flink, String name, LongSupplier rowsRead, double seconds) throws Exception {
        List<String> samples = new ArrayList<>();
        long started = System.nanoTime();
        JobClient job = flink.executeAsync(name);
        CompletableFuture<?> end = job.getJobExecutionResult();
        boolean running = true;
        while (running) {
            try {
                end.get(SAMPLE_MS, TimeUnit.MILLISECONDS);
                running = false;
            } catch (TimeoutException stillRunning) {
                samples.add(String.format("[%.3f, %d]", secondsSince(started), rowsRead.getAsLong()));
                if (seconds > 0 && secondsSince(started) > seconds) {
                    job.cancel().get();
                    running = false;
                }
            } catch (ExecutionException failed) {
                failed.printStackTrace();
                System.exit(1);
            }
        }
        write(samples, secondsSince(started));
        // Flink's threads may outlive the job.
        System.exit(0);
    }

    private void write(List<String> samples, double jobSeconds) throws IOException {
        String result = String.format(
                "{\"samples\": [%s], \"job_seconds\": %.3f, \"versions\": {\"flink\": \"%s\", \"java\": \"%s\"}}",
                String.join(", ", samples),
                jobSeconds,
                EnvironmentInformation.getVersion(),
                System.getProperty("java.version"));
        Files.writeString(Paths.get(option("result")), result);
    }

    private static double secondsSince(long nanoTime) {
        return (System.nanoTime() - nanoTime) / 1e9;
    }
}
