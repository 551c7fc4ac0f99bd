/*
 * A minimal C program that rperf is compared with on real devices. It runs the loop of rperf's
 * engine without the safe library. Client and server are two processes with one reliable
 * connection, established by the connection manager.
 *
 * The loop takes the same steps as rperf:
 * - DEPTH messages are in flight (at most 16 MiB, at least LEAST_DEPTH messages).
 * - Requests are posted in lists of at most LIST.
 * - Every quarter of the depth a send is signalled. On Soft-iWARP, messages of 4 to 16 KiB are all
 *   signalled, which is faster there. With `all`, every send is, as the safe library must on iWARP.
 * - The receiver returns a credit, an empty message, for each quarter of the depth.
 * - The clock stops at the first completion after the given time.
 * - An idle process keeps polling. On a machine with one CPU it yields between polls.
 *
 * usage: bare ADDRESS send_bw|write_bw|read_bw|send_lat|write_lat SIZE MILLISECONDS [all]
 * prints: bytes per second (or the median latency in ns), CPU seconds of both processes, bytes sent
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 1024
#define LIST 16
#define LEAST_DEPTH 8
#define BYTES (16 << 20)
#define CHECKS_PER_POLL 8
#define RECEIVES (DEPTH + 4 + 1)
#define SENDS (RECEIVES + 1)
#define POLL 16
#define SAMPLES (1 << 22)
#define SOFT_IWARP 0x626d74

enum verb { SEND, WRITE, READ };

struct remote {
	uint64_t addr;
	uint32_t rkey;
};

/* Memory shared by the client and the server. */
struct shared {
	volatile int listening, started, finished, done[2];
	volatile uint64_t sent;
	double cpu[2], rate;
};

/* One side of the connection. */
struct peer {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *source;
	volatile char *target;
	struct remote remote;
	uint32_t size, inline_data;
	enum verb verb;
	int single_cpu, signal_all;
	uint64_t posted, completed, acked, arrived, credited;
	/* Every `signal_interval`-th send is signalled. */
	uint32_t consumed, depth, quarter, signal_interval;
};

static struct shared *shared;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct rdma_cm_event *event(struct peer *p, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(p->channel, &event))
		die("rdma_get_cm_event");
	if (event->event != expected) {
		fprintf(stderr, "bare: %s, status %d\n", rdma_event_str(event->event), event->status);
		_exit(1);
	}
	return event;
}

static void wait_event(struct peer *p, enum rdma_cm_event_type expected)
{
	rdma_ack_cm_event(event(p, expected));
}

static void post_receives(struct peer *p, uint32_t count)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p->target, .length = p->size, .lkey = p->mr->lkey };
	struct ibv_recv_wr wr[RECEIVES], *bad;

	for (uint32_t i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1 };
	if (count && ibv_post_recv(p->id->qp, wr, &bad))
		die("ibv_post_recv");
}

static void prepare(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int access = IBV_ACCESS_LOCAL_WRITE | (p->verb == SEND ? 0 : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	size_t capacity = p->size > 4096 ? p->size : 4096;
	struct ibv_pd *pd = ibv_alloc_pd(p->id->verbs);
	struct ibv_device_attr device;

	p->cq = ibv_create_cq(p->id->verbs, SENDS + RECEIVES, NULL, NULL, 0);
	p->source = mmap(NULL, 2 * capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!pd || !p->cq || p->source == MAP_FAILED)
		die("ibv_create_cq");
	p->target = p->source + capacity;
	memset(p->source, 0, 2 * capacity);
	p->mr = ibv_reg_mr(pd, p->source, 2 * capacity, access);
	if (!p->mr)
		die("ibv_reg_mr");
	attr.send_cq = attr.recv_cq = p->cq;
	attr.cap.max_inline_data = p->inline_data = p->size <= 64 ? p->size : 0;
	if (rdma_create_qp(p->id, pd, &attr))
		die("rdma_create_qp");
	p->depth = p->size * (uint64_t)DEPTH <= BYTES ? DEPTH : BYTES / p->size;
	if (p->depth < LEAST_DEPTH)
		p->depth = LEAST_DEPTH;
	p->quarter = p->depth / 4;
	if (ibv_query_device(p->id->verbs, &device))
		die("ibv_query_device");
	if (device.vendor_id == SOFT_IWARP && p->verb != READ && p->size >= 4096 && p->size < 16384)
		p->signal_all = 1;
	p->signal_interval = p->signal_all ? 1 : p->quarter;
	p->single_cpu = sysconf(_SC_NPROCESSORS_ONLN) < 2;
	if (p->verb == SEND)
		post_receives(p, RECEIVES);
}

static void post(struct peer *p, uint32_t count, int signal_all)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p->source, .length = p->size, .lkey = p->mr->lkey };
	struct ibv_send_wr wr[LIST], *bad;
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	for (uint32_t i = 0; i < count; i++) {
		uint64_t n = p->posted + i + 1;
		wr[i] = (struct ibv_send_wr){
			.wr_id = n,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcodes[p->verb],
			.send_flags = (signal_all || n % p->signal_interval == 0 ? IBV_SEND_SIGNALED : 0) |
				      (p->inline_data && p->verb != READ ? IBV_SEND_INLINE : 0),
			.wr.rdma = { .remote_addr = p->remote.addr, .rkey = p->remote.rkey },
		};
	}
	if (ibv_post_send(p->id->qp, wr, &bad))
		die("ibv_post_send");
	p->posted += count;
}

static void credit(struct peer *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (ibv_post_send(p->id->qp, &wr, &bad))
		die("ibv_post_send");
}

/* Handles completions, and returns their number. */
static int poll(struct peer *p)
{
	struct ibv_wc wc[POLL];
	int count = ibv_poll_cq(p->cq, POLL, wc);

	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "bare: %s\n", ibv_wc_status_str(wc[i].status));
			_exit(1);
		}
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			if (wc[i].wr_id)
				p->completed = wc[i].wr_id;
			continue;
		}
		p->consumed++;
		if (wc[i].byte_len)
			p->arrived++;
		else
			p->acked += p->quarter;
	}
	if (p->consumed) {
		post_receives(p, p->consumed);
		p->consumed = 0;
	}
	return count;
}

static void yield_if_single_cpu(struct peer *p)
{
	if (p->single_cpu)
		sched_yield();
}

/* Sends messages until the time has elapsed, then waits for those in flight. */
static void stream(struct peer *p, uint64_t nanos)
{
	uint64_t start = now(), end = start + nanos, counted = 0, stopped = 0;
	int idle = 0, elapsed = 0;

	while (!stopped || p->completed < p->posted) {
		uint64_t taken = p->verb == SEND && p->acked < p->completed ? p->acked : p->completed;
		uint64_t free = stopped ? 0 : p->depth - (p->posted - taken), before = p->completed;
		int can_post = free > 0;

		if (can_post)
			post(p, free < LIST ? (uint32_t)free : LIST, 0);
		if (!poll(p) && !can_post)
			yield_if_single_cpu(p);
		if (!elapsed && (can_post || ++idle % 8 == 0))
			elapsed = now() >= end;
		if (!stopped && elapsed && p->completed > before) {
			stopped = now();
			counted = p->completed;
			if (p->completed < p->posted)
				post(p, 1, 1);
		}
	}
	shared->sent = p->posted;
	shared->rate = (double)counted * p->size * 1e9 / (double)(stopped - start);
	shared->finished = 1;
}

/* Receives messages and returns credits. The rate covers the messages of the given time. */
static void sink(struct peer *p, uint64_t nanos)
{
	uint64_t start = now(), end = start + nanos, counted = 0, stopped = 0;
	int idle = 0, elapsed = 0;

	while (!stopped || !shared->finished || p->arrived < shared->sent) {
		uint64_t before = p->arrived;
		int count = poll(p);

		while (p->arrived - p->credited >= p->quarter) {
			p->credited += p->quarter;
			credit(p);
		}
		if (!count)
			yield_if_single_cpu(p);
		if (!elapsed && (count || ++idle % 8 == 0))
			elapsed = now() >= end;
		if (!stopped && elapsed && (p->arrived > before || (shared->finished && p->arrived >= shared->sent))) {
			stopped = now();
			counted = p->arrived;
		}
	}
	shared->rate = (double)counted * p->size * 1e9 / (double)(stopped - start);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Waits for message n: a receive, or n in the last byte of the target of a write. */
static void wait_for(struct peer *p, uint64_t n)
{
	for (;;) {
		for (int i = 0; p->verb == WRITE && i < CHECKS_PER_POLL; i++)
			if (p->target[p->size - 1] == (char)n && n % CHECKS_PER_POLL)
				return;
		poll(p);
		if (p->verb == SEND ? p->arrived >= n : p->target[p->size - 1] == (char)n)
			return;
		if (shared->finished)
			return;
		yield_if_single_cpu(p);
	}
}

/* Sends messages back and forth, and records half of each round-trip time. */
static void ping(struct peer *p, uint64_t nanos, int client)
{
	uint64_t start = now(), before = start;
	uint32_t *samples = client ? malloc(SAMPLES * sizeof(*samples)) : NULL;
	uint64_t n = 0;

	if (client && !samples)
		die("malloc");
	while (client ? before < start + nanos && n < SAMPLES : !shared->finished) {
		n++;
		if (!client) {
			wait_for(p, n);
			if (shared->finished)
				break;
		}
		if (p->verb == WRITE)
			p->source[p->size - 1] = (char)n;
		post(p, 1, 0);
		if (client) {
			wait_for(p, n);
			uint64_t t = now();

			samples[n - 1] = (uint32_t)((t - before) / 2);
			before = t;
		}
	}
	if (!client)
		return;
	shared->finished = 1;
	shared->sent = n;
	qsort(samples, n, sizeof(*samples), by_size);
	shared->rate = n ? samples[n / 2] : 0;
}

static void run(struct peer *p, int latency, uint64_t nanos, int client)
{
	double before = cpu();

	if (latency)
		ping(p, nanos, client);
	else if (client)
		stream(p, nanos);
	else if (p->verb == SEND)
		sink(p, nanos);
	else
		while (!shared->finished)
			usleep(2000);
	shared->cpu[client] = cpu() - before;
	/* Both processes must finish before one of them exits, because that breaks the connection. */
	shared->done[client] = 1;
	while (!shared->done[!client])
		usleep(1000);
}

static void connect_as(struct peer *p, int client, struct sockaddr_in *address)
{
	struct rdma_conn_param param = { .retry_count = 6, .rnr_retry_count = 7 };
	struct ibv_device_attr device;
	struct remote mine;
	struct rdma_cm_event *cm_event;

	p->channel = rdma_create_event_channel();
	if (!p->channel || rdma_create_id(p->channel, &p->id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (client) {
		while (!shared->listening)
			usleep(1000);
		if (rdma_resolve_addr(p->id, NULL, (struct sockaddr *)address, 2000))
			die("rdma_resolve_addr");
		wait_event(p, RDMA_CM_EVENT_ADDR_RESOLVED);
		if (rdma_resolve_route(p->id, 2000))
			die("rdma_resolve_route");
		wait_event(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
	} else {
		if (rdma_bind_addr(p->id, (struct sockaddr *)address) || rdma_listen(p->id, 1))
			die("rdma_listen");
		shared->listening = 1;
		cm_event = event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
		p->id = cm_event->id;
		memcpy(&p->remote, cm_event->param.conn.private_data, sizeof(p->remote));
		rdma_ack_cm_event(cm_event);
	}
	prepare(p);
	mine = (struct remote){ .addr = (uintptr_t)p->target, .rkey = p->mr->rkey };
	if (ibv_query_device(p->id->verbs, &device))
		die("ibv_query_device");
	param.responder_resources = (uint8_t)device.max_qp_rd_atom;
	param.initiator_depth = (uint8_t)device.max_qp_init_rd_atom;
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	if (client ? rdma_connect(p->id, &param) : rdma_accept(p->id, &param))
		die("rdma_connect");
	cm_event = event(p, RDMA_CM_EVENT_ESTABLISHED);
	if (client)
		memcpy(&p->remote, cm_event->param.conn.private_data, sizeof(p->remote));
	rdma_ack_cm_event(cm_event);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(19870) };
	struct peer p = {};
	int latency, client, status = 0;
	uint64_t nanos;

	if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "all")) || !inet_aton(argv[1], &address.sin_addr) || strlen(argv[2]) < 7) {
		fprintf(stderr, "usage: bare ADDRESS send_bw|write_bw|read_bw|send_lat|write_lat SIZE MILLISECONDS [all]\n");
		return 2;
	}
	p.verb = argv[2][0] == 's' ? SEND : argv[2][0] == 'w' ? WRITE : READ;
	latency = !strcmp(strchr(argv[2], '_'), "_lat");
	p.size = (uint32_t)atol(argv[3]);
	nanos = (uint64_t)atol(argv[4]) * 1000000;
	p.signal_all = argc == 6;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	client = fork() == 0;
	if (client && prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl");
	connect_as(&p, client, &address);
	if (!client)
		shared->started = 1;
	while (!shared->started)
		sched_yield();
	run(&p, latency, nanos, client);
	if (client)
		_exit(0);
	if (wait(&status) < 0 || status)
		return 1;
	printf("%.0f %.6f %.0f\n", shared->rate, shared->cpu[0] + shared->cpu[1], (double)shared->sent * p.size);
	return 0;
}
