import com.netflix.dyno.connectionpool.Host;
import com.netflix.dyno.connectionpool.HostBuilder;
import com.netflix.dyno.queues.DynoQueue;
import com.netflix.dyno.queues.Message;
import com.netflix.dyno.queues.ShardSupplier;
import com.netflix.dyno.queues.redis.v2.QueueBuilder;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import redis.clients.jedis.JedisPoolConfig;

/**
 * Uses dyno-queues for whoever connects, so that its Java client can be measured like a Python one.
 *
 * <p>Orders come by a loopback socket, numbers are big-endian:
 *
 * <ul>
 *   <li>P, batch, count, and as many bodies, each behind its length: pushes them in calls of `batch`; answers a byte
 *       when all are stored
 *   <li>D, count, batch: pops and acknowledges; answers how many there were
 *   <li>E, count: pops what has come; answers how many, the bodies, and a byte when they are acknowledged
 * </ul>
 *
 * It stays up while clients come and go, so that what is measured is compiled code.
 */
public final class DynoWorker {
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(5);
    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(200);

    /** Less than nothing: pop returns what is there at its first look, else it sleeps 10 ms between looks. */
    private static final int DO_NOT_WAIT = -1;

    private static final AtomicLong NEXT_ID = new AtomicLong(System.nanoTime());

    private final List<DynoQueue> queues = new ArrayList<>();

    private DynoWorker(int redisPort, int shards) {
        TreeSet<String> names = new TreeSet<>();
        for (int number = 0; number < shards; number++) {
            names.add("shard" + number);
        }
        // A queue pops from its own shard alone; so there is one for each.
        for (String name : names) {
            queues.add(open(redisPort, names, name));
        }
    }

    private static DynoQueue open(int redisPort, Set<String> names, String own) {
        JedisPoolConfig pool = new JedisPoolConfig();
        pool.setMaxTotal(10);
        List<Host> hosts = new ArrayList<>();
        for (String name : names) {
            hosts.add(
                    new HostBuilder()
                            .setHostname("127.0.0.1")
                            .setIpAddress("127.0.0.1")
                            .setPort(redisPort)
                            .setRack(name)
                            .createHost());
        }
        return new QueueBuilder()
                .setQueueName("bench")
                .setRedisKeyPrefix("bench")
                .setUnackTime(60_000)
                .setShardSupplier(new Shards(names, own))
                .setCurrentShard(own)
                .useNonDynomiteRedis(pool, hosts)
                .build();
    }

    private record Shards(Set<String> names, String own) implements ShardSupplier {
        @Override
        public Set<String> getQueueShards() {
            return names;
        }

        @Override
        public String getCurrentShard() {
            return own;
        }

        @Override
        public String getShardForHost(Host host) {
            return host.getRack();
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
            DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 16));
            while (true) {
                switch (in.readByte()) {
                    case 'P' -> push(in, out);
                    case 'D' -> drain(in, out);
                    case 'E' -> popSome(in, out);
                    default -> throw new IOException("an order that nobody knows");
                }
                out.flush();
            }
        } catch (EOFException closed) {
            // The client is done.
        } catch (IOException | RuntimeException error) {
            error.printStackTrace();
        }
    }

    private void push(DataInputStream in, DataOutputStream out) throws IOException {
        int batch = in.readInt();
        int count = in.readInt();
        List<Message> messages = new ArrayList<>(batch);
        for (int number = 1; number <= count; number++) {
            byte[] body = in.readNBytes(in.readInt());
            // A payload is text; of noise, Base64 is the shortest that JSON leaves as it is.
            String payload = Base64.getEncoder().encodeToString(body);
            messages.add(new Message(Long.toString(NEXT_ID.getAndIncrement()), payload));
            if (messages.size() == batch || number == count) {
                queues.get(0).push(messages);
                messages = new ArrayList<>(batch);
            }
        }
        out.writeByte(1);
    }

    private void drain(DataInputStream in, DataOutputStream out) throws IOException {
        int count = in.readInt();
        int batch = in.readInt();
        int popped = 0;
        long lastNs = System.nanoTime();
        while (popped < count && System.nanoTime() - lastNs < PATIENCE_NS) {
            int before = popped;
            for (DynoQueue queue : queues) {
                List<Message> messages = pop(queue, Math.min(batch, count - popped));
                queue.ack(messages);
                popped += messages.size();
            }
            if (popped > before) {
                lastNs = System.nanoTime();
            } else {
                rest();
            }
        }
        out.writeInt(popped);
    }

    private void popSome(DataInputStream in, DataOutputStream out) throws IOException {
        int count = in.readInt();
        long until = System.nanoTime() + LOOK_NS;
        while (System.nanoTime() < until) {
            for (DynoQueue queue : queues) {
                List<Message> messages = pop(queue, count);
                if (!messages.isEmpty()) {
                    tell(messages, out);
                    queue.ack(messages);
                    out.writeByte(1);
                    return;
                }
            }
            rest();
        }
        out.writeInt(0);
        out.writeByte(1);
    }

    private static List<Message> pop(DynoQueue queue, int count) {
        return queue.pop(count, DO_NOT_WAIT, TimeUnit.MILLISECONDS);
    }

    private static void tell(List<Message> messages, DataOutputStream out) throws IOException {
        out.writeInt(messages.size());
        for (Message message : messages) {
            byte[] body = Base64.getDecoder().decode(message.getPayload());
            out.writeInt(body.length);
            out.write(body);
        }
        out.flush();
    }

    private static void rest() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] words) throws IOException {
        DynoWorker worker = new DynoWorker(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        try (ServerSocket server = new ServerSocket(Integer.parseInt(words[0]), 16, loopback)) {
            while (true) {
                Socket socket = server.accept();
                Thread thread = new Thread(() -> worker.serve(socket));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }
}
