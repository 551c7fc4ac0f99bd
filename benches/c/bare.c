/*
 * What rperf is measured against on real devices: the loop of its engine, bare. Both ends run here as two processes, over one reliable
 * connection that the connection manager makes. Nothing is owned, held, retired or named; a completion is looked at for its status only.
 *
 * As rperf does it: DEPTH messages under way (16 MiB of large ones), lists of up to LIST, a completion asked for each quarter of the depth (each
 * message where Soft-iWARP is faster so), a credit (a message of no bytes) returned for each quarter received; the clock stops with the first
 * completion after the time; who finds nothing polls on, and gives the processor away between polls where it is the only one.
 *
 * usage: bare ADDRESS send_bw|write_bw|read_bw|send_lat|write_lat SIZE MILLISECONDS
 * prints: bytes a second (or the median latency in ns), processor seconds of both ends, bytes moved
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
#define LOOKS 8
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

/* What both processes see. */
struct shared {
	volatile int listening, begun, finished, done[2];
	volatile uint64_t sent;
	double cpu[2], rate;
};

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *source;
	volatile char *target;
	struct remote peer;
	uint32_t size, inline_data;
	enum verb verb;
	int alone;
	uint64_t posted, completed, acked, arrived, returned;
	uint32_t used, depth, quarter, every;
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

static struct rdma_cm_event *event(struct end *e, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(e->channel, &event))
		die("rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "bare: %s, status %d\n", rdma_event_str(event->event), event->status);
		_exit(1);
	}
	return event;
}

static void take_event(struct end *e, enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(event(e, wanted));
}

static void receives(struct end *e, uint32_t count)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->target, .length = e->size, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr[RECEIVES], *bad;

	for (uint32_t i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1 };
	if (count && ibv_post_recv(e->id->qp, wr, &bad))
		die("ibv_post_recv");
}

static void prepare(struct end *e)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int access = IBV_ACCESS_LOCAL_WRITE | (e->verb == SEND ? 0 : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	size_t room = e->size > 4096 ? e->size : 4096;
	struct ibv_pd *pd = ibv_alloc_pd(e->id->verbs);
	struct ibv_device_attr device;

	e->cq = ibv_create_cq(e->id->verbs, SENDS + RECEIVES, NULL, NULL, 0);
	e->source = mmap(NULL, 2 * room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!pd || !e->cq || e->source == MAP_FAILED)
		die("ibv_create_cq");
	e->target = e->source + room;
	memset(e->source, 0, 2 * room);
	e->mr = ibv_reg_mr(pd, e->source, 2 * room, access);
	if (!e->mr)
		die("ibv_reg_mr");
	attr.send_cq = attr.recv_cq = e->cq;
	attr.cap.max_inline_data = e->inline_data = e->size <= 64 ? e->size : 0;
	if (rdma_create_qp(e->id, pd, &attr))
		die("rdma_create_qp");
	e->depth = e->size * (uint64_t)DEPTH <= BYTES ? DEPTH : BYTES / e->size;
	if (e->depth < LEAST_DEPTH)
		e->depth = LEAST_DEPTH;
	e->quarter = e->depth / 4;
	if (ibv_query_device(e->id->verbs, &device))
		die("ibv_query_device");
	e->every = device.vendor_id == SOFT_IWARP && e->verb != READ && e->size >= 4096 && e->size < 16384 ? 1 : e->quarter;
	e->alone = sysconf(_SC_NPROCESSORS_ONLN) < 2;
	if (e->verb == SEND)
		receives(e, RECEIVES);
}

static void post(struct end *e, uint32_t count, int signal_all)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->source, .length = e->size, .lkey = e->mr->lkey };
	struct ibv_send_wr wr[LIST], *bad;
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	for (uint32_t i = 0; i < count; i++) {
		uint64_t n = e->posted + i + 1;
		wr[i] = (struct ibv_send_wr){
			.wr_id = n,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcodes[e->verb],
			.send_flags = (signal_all || n % e->every == 0 ? IBV_SEND_SIGNALED : 0) |
				      (e->inline_data && e->verb != READ ? IBV_SEND_INLINE : 0),
			.wr.rdma = { .remote_addr = e->peer.addr, .rkey = e->peer.rkey },
		};
	}
	if (ibv_post_send(e->id->qp, wr, &bad))
		die("ibv_post_send");
	e->posted += count;
}

static void credit(struct end *e)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (ibv_post_send(e->id->qp, &wr, &bad))
		die("ibv_post_send");
}

/* Takes what has completed; returns how many. */
static int poll(struct end *e)
{
	struct ibv_wc wc[POLL];
	int count = ibv_poll_cq(e->cq, POLL, wc);

	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "bare: %s\n", ibv_wc_status_str(wc[i].status));
			_exit(1);
		}
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			if (wc[i].wr_id)
				e->completed = wc[i].wr_id;
			continue;
		}
		e->used++;
		if (wc[i].byte_len)
			e->arrived++;
		else
			e->acked += e->quarter;
	}
	if (e->used) {
		receives(e, e->used);
		e->used = 0;
	}
	return count;
}

static void give_away(struct end *e)
{
	if (e->alone)
		sched_yield();
}

/* Many messages one way, until the time is over; the rest is waited for. */
static void stream(struct end *e, uint64_t nanos)
{
	uint64_t start = now(), end = start + nanos, counted = 0, stopped = 0;
	int idle = 0, over = 0;

	while (!stopped || e->completed < e->posted) {
		uint64_t taken = e->verb == SEND && e->acked < e->completed ? e->acked : e->completed;
		uint64_t room = stopped ? 0 : e->depth - (e->posted - taken), before = e->completed;
		int moved = room > 0;

		if (moved)
			post(e, room < LIST ? (uint32_t)room : LIST, 0);
		if (!poll(e) && !moved)
			give_away(e);
		if (!over && (moved || ++idle % 8 == 0))
			over = now() >= end;
		if (!stopped && over && e->completed > before) {
			stopped = now();
			counted = e->completed;
			if (e->completed < e->posted)
				post(e, 1, 1);
		}
	}
	shared->sent = e->posted;
	shared->rate = (double)counted * e->size * 1e9 / (double)(stopped - start);
	shared->finished = 1;
}

/* Takes what comes and returns credit; the rate is of what arrived while its clock ran. */
static void sink(struct end *e, uint64_t nanos)
{
	uint64_t start = now(), end = start + nanos, counted = 0, stopped = 0;
	int idle = 0, over = 0;

	while (!stopped || !shared->finished || e->arrived < shared->sent) {
		uint64_t before = e->arrived;
		int count = poll(e);

		while (e->arrived - e->returned >= e->quarter) {
			e->returned += e->quarter;
			credit(e);
		}
		if (!count)
			give_away(e);
		if (!over && (count || ++idle % 8 == 0))
			over = now() >= end;
		if (!stopped && over && (e->arrived > before || (shared->finished && e->arrived >= shared->sent))) {
			stopped = now();
			counted = e->arrived;
		}
	}
	shared->rate = (double)counted * e->size * 1e9 / (double)(stopped - start);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Waits for message n: a receive, or its mark in the last byte. */
static void wait_for(struct end *e, uint64_t n)
{
	for (;;) {
		for (int i = 0; e->verb == WRITE && i < LOOKS; i++)
			if (e->target[e->size - 1] == (char)n && n % LOOKS)
				return;
		poll(e);
		if (e->verb == SEND ? e->arrived >= n : e->target[e->size - 1] == (char)n)
			return;
		if (shared->finished)
			return;
		give_away(e);
	}
}

/* Messages to and fro; half of each round trip is kept. */
static void ping(struct end *e, uint64_t nanos, int first)
{
	uint64_t start = now(), before = start;
	uint32_t *samples = first ? malloc(SAMPLES * sizeof(*samples)) : NULL;
	uint64_t n = 0;

	if (first && !samples)
		die("malloc");
	while (first ? before < start + nanos && n < SAMPLES : !shared->finished) {
		n++;
		if (!first) {
			wait_for(e, n);
			if (shared->finished)
				break;
		}
		if (e->verb == WRITE)
			e->source[e->size - 1] = (char)n;
		post(e, 1, 0);
		if (first) {
			wait_for(e, n);
			uint64_t t = now();

			samples[n - 1] = (uint32_t)((t - before) / 2);
			before = t;
		}
	}
	if (!first)
		return;
	shared->finished = 1;
	shared->sent = n;
	qsort(samples, n, sizeof(*samples), by_size);
	shared->rate = n ? samples[n / 2] : 0;
}

static void run(struct end *e, int latency, uint64_t nanos, int first)
{
	double before = cpu();

	if (latency)
		ping(e, nanos, first);
	else if (first)
		stream(e, nanos);
	else if (e->verb == SEND)
		sink(e, nanos);
	else
		while (!shared->finished)
			usleep(2000);
	shared->cpu[first] = cpu() - before;
	/* Who leaves first breaks the connection. */
	shared->done[first] = 1;
	while (!shared->done[!first])
		usleep(1000);
}

static void connect_as(struct end *e, int first, struct sockaddr_in *to)
{
	struct rdma_conn_param param = { .retry_count = 6, .rnr_retry_count = 7 };
	struct ibv_device_attr device;
	struct remote mine;
	struct rdma_cm_event *got;

	e->channel = rdma_create_event_channel();
	if (!e->channel || rdma_create_id(e->channel, &e->id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (first) {
		while (!shared->listening)
			usleep(1000);
		if (rdma_resolve_addr(e->id, NULL, (struct sockaddr *)to, 2000))
			die("rdma_resolve_addr");
		take_event(e, RDMA_CM_EVENT_ADDR_RESOLVED);
		if (rdma_resolve_route(e->id, 2000))
			die("rdma_resolve_route");
		take_event(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	} else {
		if (rdma_bind_addr(e->id, (struct sockaddr *)to) || rdma_listen(e->id, 1))
			die("rdma_listen");
		shared->listening = 1;
		got = event(e, RDMA_CM_EVENT_CONNECT_REQUEST);
		e->id = got->id;
		memcpy(&e->peer, got->param.conn.private_data, sizeof(e->peer));
		rdma_ack_cm_event(got);
	}
	prepare(e);
	mine = (struct remote){ .addr = (uintptr_t)e->target, .rkey = e->mr->rkey };
	if (ibv_query_device(e->id->verbs, &device))
		die("ibv_query_device");
	param.responder_resources = (uint8_t)device.max_qp_rd_atom;
	param.initiator_depth = (uint8_t)device.max_qp_init_rd_atom;
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	if (first ? rdma_connect(e->id, &param) : rdma_accept(e->id, &param))
		die("rdma_connect");
	got = event(e, RDMA_CM_EVENT_ESTABLISHED);
	if (first)
		memcpy(&e->peer, got->param.conn.private_data, sizeof(e->peer));
	rdma_ack_cm_event(got);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(19870) };
	struct end e = {};
	int latency, first, status = 0;
	uint64_t nanos;

	if (argc != 5 || !inet_aton(argv[1], &to.sin_addr) || strlen(argv[2]) < 7) {
		fprintf(stderr, "usage: bare ADDRESS send_bw|write_bw|read_bw|send_lat|write_lat SIZE MILLISECONDS\n");
		return 2;
	}
	e.verb = argv[2][0] == 's' ? SEND : argv[2][0] == 'w' ? WRITE : READ;
	latency = !strcmp(strchr(argv[2], '_'), "_lat");
	e.size = (uint32_t)atol(argv[3]);
	nanos = (uint64_t)atol(argv[4]) * 1000000;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	first = fork() == 0;
	if (first && prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl");
	connect_as(&e, first, &to);
	if (!first)
		shared->begun = 1;
	while (!shared->begun)
		sched_yield();
	run(&e, latency, nanos, first);
	if (first)
		_exit(0);
	if (wait(&status) < 0 || status)
		return 1;
	printf("%.0f %.6f %.0f\n", shared->rate, shared->cpu[0] + shared->cpu[1], (double)shared->sent * e.size);
	return 0;
}
