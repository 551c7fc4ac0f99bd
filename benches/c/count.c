/*
 * Counts the instructions that a program spends on its messages, on the model of an mlx5 adapter
 * under callgrind. It is preloaded together with the model:
 *
 *   LD_PRELOAD="count.so libnic_model.so" valgrind --tool=callgrind --collect-atstart=no PROGRAM
 *
 * Callgrind counts from the message COUNT_FROM to the message COUNT_TO. The calls of post and poll
 * are intercepted, so that no wait is counted:
 *
 * - After a post, the adapter finishes all posted sends before the next poll. That poll is counted,
 *   even if it finds nothing.
 * - A further poll, without a post in between, waits until there is a completion. A poll that waits
 *   in vain for COUNT_WAIT_MS is not counted.
 * - With COUNT_PING=1, a post returns when the peer has answered. A program that polls memory then
 *   finds the answer at once.
 *
 * At the end it writes the number of counted messages, of polls, of polls without a completion and
 * of uncounted polls to the file COUNT_REPORT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

struct progress {
	uint64_t sent, received;
	int32_t is_idle, has_completions;
};

extern int nic_model_step(void);
extern struct progress nic_model_progress(uint32_t cq_handle);

static int (*original_poll)(struct ibv_cq *cq, int count, struct ibv_wc *wc);
static int (*original_start)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
static int (*original_post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int (*original_complete)(struct ibv_qp_ex *qp);

static enum { BEFORE, COUNTING, AFTER } phase;
static uint64_t from, to, first, polls, empty_polls, uncounted_polls;
static long wait_ms;
static int ping, has_posted;
/* A queue pair whose change of state was only seen below libibverbs. */
static struct ibv_qp *last_qp;

static uint64_t number(const char *name, uint64_t unset)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 10) : unset;
}

static uint64_t messages(struct progress p)
{
	return p.sent > p.received ? p.sent : p.received;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Stops counting, for the work of this file and of the adapter. */
static void pause_count(void)
{
	if (phase == COUNTING)
		CALLGRIND_TOGGLE_COLLECT;
}

static void report(uint64_t count)
{
	const char *name = getenv("COUNT_REPORT");
	FILE *file = name ? fopen(name, "w") : NULL;

	if (!file)
		return;
	fprintf(file, "%llu %llu %llu %llu\n", (unsigned long long)count, (unsigned long long)polls,
		(unsigned long long)empty_polls, (unsigned long long)uncounted_polls);
	fclose(file);
}

/* Continues counting, if the message at hand is one to count. */
static void resume_count(struct progress p)
{
	if (phase == BEFORE && messages(p) >= from) {
		phase = COUNTING;
		first = messages(p);
	} else if (phase == COUNTING && messages(p) >= to) {
		phase = AFTER;
		report(messages(p) - first);
	}
	if (phase == COUNTING)
		CALLGRIND_TOGGLE_COLLECT;
}

static void intercept(struct ibv_qp *qp);

/* Waits as described above. Returns 0 if the poll is not counted, and must find nothing. */
static int await_completions(uint32_t cq_handle)
{
	struct progress p;
	long end = 0;
	int counts;

	pause_count();
	if (last_qp)
		intercept(last_qp);
	for (;;) {
		p = nic_model_progress(cq_handle);
		if (p.has_completions && p.is_idle)
			break;
		if (!nic_model_step()) {
			if (has_posted && p.is_idle)
				break;
			if (!end)
				end = now_ms() + (phase == COUNTING ? wait_ms : 1);
			else if (now_ms() >= end)
				break;
			usleep(20);
		}
	}
	counts = has_posted || p.has_completions;
	has_posted = 0;
	if (phase == COUNTING) {
		polls += counts;
		empty_polls += counts && !p.has_completions;
		uncounted_polls += !counts;
	}
	resume_count(p);
	return counts;
}

static int count_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return await_completions(cq->handle) ? original_poll(cq, count, wc) : 0;
}

static int count_start(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return await_completions(cq->handle) ? original_start(cq, attr) : ENOENT;
}

/* Waits until the peer has answered. */
static void await_answer(uint64_t received)
{
	struct progress p = nic_model_progress(0);
	long end = now_ms() + (phase == AFTER ? 0 : wait_ms);

	has_posted = 1;
	while (ping && p.received == received && now_ms() < end) {
		if (!nic_model_step())
			usleep(20);
		p = nic_model_progress(0);
	}
	resume_count(p);
}

static int count_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct progress before;
	int ret;

	pause_count();
	before = nic_model_progress(0);
	resume_count(before);
	ret = original_post(qp, wr, bad);
	pause_count();
	await_answer(before.received);
	return ret;
}

static int count_complete(struct ibv_qp_ex *qp)
{
	struct progress before;
	int ret;

	pause_count();
	before = nic_model_progress(0);
	resume_count(before);
	ret = original_complete(qp);
	pause_count();
	await_answer(before.received);
	return ret;
}

/*
 * Intercepts the calls of a queue pair after each change of its state: libmlx5 replaces wr_complete
 * when a queue pair becomes able to send.
 */
static void intercept(struct ibv_qp *qp)
{
	struct ibv_context_ops *ops = &qp->context->ops;
	struct ibv_qp_ex *qp_ex = ibv_qp_to_qp_ex(qp);
	/* Both kinds of completion queues of libmlx5 have the same structure. */
	struct ibv_cq_ex *cq_ex = (struct ibv_cq_ex *)qp->send_cq;

	if (ops->poll_cq != count_poll) {
		from = number("COUNT_FROM", 0);
		to = number("COUNT_TO", UINT64_MAX);
		wait_ms = (long)number("COUNT_WAIT_MS", 20);
		ping = (int)number("COUNT_PING", 0);
		original_poll = ops->poll_cq;
		original_post = ops->post_send;
		ops->poll_cq = count_poll;
		ops->post_send = count_post;
	}
	if (cq_ex->start_poll && cq_ex->start_poll != count_start) {
		original_start = cq_ex->start_poll;
		cq_ex->start_poll = count_start;
	}
	if (qp_ex && qp_ex->wr_complete && qp_ex->wr_complete != count_complete) {
		original_complete = qp_ex->wr_complete;
		qp_ex->wr_complete = count_complete;
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static int (*original)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int ret;

	if (!original)
		original = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int))dlsym(RTLD_NEXT, "ibv_modify_qp");
	ret = original(qp, attr, mask);
	last_qp = NULL;
	intercept(qp);
	return ret;
}

/*
 * libmlx5 calls this function. A program that has loaded libibverbs with dlopen is only seen here,
 * before libmlx5 replaces wr_complete, so the next poll intercepts that.
 */
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, void *cmd, size_t size)
{
	int (*original)(struct ibv_qp *, struct ibv_qp_attr *, int, void *, size_t);
	void *verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int ret;

	original = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int, void *, size_t))dlsym(verbs, "ibv_cmd_modify_qp");
	ret = original(qp, attr, mask, cmd, size);
	last_qp = qp;
	intercept(qp);
	return ret;
}
