/*
 * The C program that the safe data path is compared with. It takes the same steps through the same
 * function tables as a careful C program: it identifies requests by wr_id, checks every status and
 * whether a poll failed (like ibv_rc_pingpong of rdma-core), ends each poll that it started, and
 * fills in each request completely, as a program does that sends from varying addresses.
 *
 * There are two variants. One has a single registered buffer. The other has a pool of buffers and
 * finds the buffer of a completed request by its wr_id.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32

struct buffer {
	char *start;
	uint32_t lkey;
	uint32_t capacity;
	uint32_t length;
};

/* A completion of a queue with timestamps. */
struct completion {
	uint64_t wr_id;
	uint64_t timestamp;
	uint32_t qp_num;
	enum ibv_wc_opcode opcode;
	enum ibv_wc_status status;
	/* Of a receive. */
	uint32_t byte_len;
	unsigned int wc_flags;
};

struct loop {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_mr *mr;
	char *memory;
	uint32_t length;
	uint64_t next;
	struct completion last;
	int completed;
	struct ibv_wc wc[BATCH];
	struct completion completions[BATCH];
	/* The pool, and a stack of its free buffers. */
	struct buffer *buffers;
	struct buffer **free;
	unsigned int free_count;
};

struct loop *c_loop_new(struct ibv_qp *qp, struct ibv_cq *cq, int stamped, uint32_t count, uint32_t length)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->qp = qp;
	loop->qp_ex = ibv_qp_to_qp_ex(qp);
	loop->cq = cq;
	loop->cq_ex = stamped ? (struct ibv_cq_ex *)cq : NULL;
	loop->length = length;
	loop->memory = calloc(count, length);
	loop->buffers = calloc(count, sizeof(*loop->buffers));
	loop->free = calloc(count, sizeof(*loop->free));
	loop->mr = ibv_reg_mr(qp->pd, loop->memory, (size_t)count * length, IBV_ACCESS_LOCAL_WRITE);
	for (uint32_t i = 0; i < count; i++) {
		loop->buffers[i] = (struct buffer){
			.start = loop->memory + (size_t)i * length,
			.lkey = loop->mr->lkey,
			.capacity = length,
			.length = length,
		};
		loop->free[loop->free_count++] = &loop->buffers[i];
	}
	return loop;
}

void c_loop_free(struct loop *loop)
{
	ibv_dereg_mr(loop->mr);
	free(loop->free);
	free(loop->buffers);
	free(loop->memory);
	free(loop);
}

/*
 * Defines a measured function, which repeats a step and returns the number of completed requests,
 * or -1. Before each step it calls the step of the peer, which callgrind does not count.
 */
#define MEASURED(name)									\
	int measured_c_##name(struct loop *loop, int times, void (*peer_step)(void *), void *rig)	\
	{											\
		loop->completed = 0;								\
		for (int i = 0; i < times; i++) {						\
			int count;								\
												\
			peer_step(rig);								\
			count = name(loop);							\
			if (count < 0)								\
				return -1;							\
			loop->completed += count;						\
		}										\
		return loop->completed;								\
	}

static inline int poll_classic(struct loop *loop)
{
	int count = ibv_poll_cq(loop->cq, BATCH, loop->wc);

	for (int i = 0; i < count; i++)
		if (loop->wc[i].status != IBV_WC_SUCCESS)
			return -1;
	return count;
}

/* Reads the fields that identify a completion, those of a message received, and the timestamp. */
static inline void read_fields(struct loop *loop, struct completion *completion, int receives)
{
	completion->wr_id = loop->cq_ex->wr_id;
	completion->qp_num = ibv_wc_read_qp_num(loop->cq_ex);
	completion->opcode = ibv_wc_read_opcode(loop->cq_ex);
	if (receives) {
		completion->byte_len = ibv_wc_read_byte_len(loop->cq_ex);
		completion->wc_flags = ibv_wc_read_wc_flags(loop->cq_ex);
	}
	completion->timestamp = ibv_wc_read_completion_ts(loop->cq_ex);
}

/*
 * Copies completions and ends the poll. The provider holds no lock while the program handles them,
 * so the program can call any verb.
 */
static inline int copy_stamped(struct loop *loop, int receives)
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0, ret = ibv_start_poll(loop->cq_ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -1;
	do {
		loop->completions[count].status = loop->cq_ex->status;
		read_fields(loop, &loop->completions[count++], receives);
	} while (count < BATCH && !(ret = ibv_next_poll(loop->cq_ex)));
	ibv_end_poll(loop->cq_ex);
	return ret && ret != ENOENT ? -1 : count;
}

static inline int poll_stamped(struct loop *loop, int receives)
{
	int count = copy_stamped(loop, receives);

	for (int i = 0; i < count; i++) {
		if (loop->completions[i].status != IBV_WC_SUCCESS)
			return -1;
		loop->last.timestamp = loop->completions[i].timestamp;
	}
	return count;
}

/*
 * Handles each completion before the next one is polled. The provider may hold the lock of the
 * completion queue meanwhile, so the program must not destroy a queue pair.
 */
static inline int poll_in_place(struct loop *loop, int receives)
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0, ret = ibv_start_poll(loop->cq_ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -1;
	do {
		if (loop->cq_ex->status != IBV_WC_SUCCESS) {
			count = -1;
			break;
		}
		read_fields(loop, &loop->last, receives);
		count++;
	} while (count < BATCH && !(ret = ibv_next_poll(loop->cq_ex)));
	ibv_end_poll(loop->cq_ex);
	return ret && ret != ENOENT ? -1 : count;
}

static inline void fill_send(struct loop *loop, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)loop->memory, .length = loop->length, .lkey = loop->mr->lkey };
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = loop->next++;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = IBV_SEND_SIGNALED;
}

static inline void write_send(struct loop *loop)
{
	loop->qp_ex->wr_id = loop->next++;
	loop->qp_ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(loop->qp_ex);
	ibv_wr_set_sge(loop->qp_ex, loop->mr->lkey, (uintptr_t)loop->memory, loop->length);
}

static inline int send_classic(struct loop *loop)
{
	int count = poll_classic(loop);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	fill_send(loop, &wr, &sge);
	return ibv_post_send(loop->qp, &wr, &bad) ? -1 : count;
}

MEASURED(send_classic)

static inline int post_extended(struct loop *loop, int count)
{
	ibv_wr_start(loop->qp_ex);
	for (int i = 0; i < count; i++)
		write_send(loop);
	return ibv_wr_complete(loop->qp_ex);
}

static inline int send_extended(struct loop *loop)
{
	int count = poll_classic(loop);

	return post_extended(loop, 1) ? -1 : count;
}

MEASURED(send_extended)

static inline int send_stamped(struct loop *loop)
{
	int count = poll_stamped(loop, 0);

	return post_extended(loop, 1) ? -1 : count;
}

MEASURED(send_stamped)

static inline int send_in_place(struct loop *loop)
{
	int count = poll_in_place(loop, 0);

	return post_extended(loop, 1) ? -1 : count;
}

MEASURED(send_in_place)

static inline int batch_classic(struct loop *loop)
{
	static struct ibv_send_wr wr[BATCH];
	static struct ibv_sge sge[BATCH];
	struct ibv_send_wr *bad;
	int count = poll_classic(loop);

	for (int i = 0; i < BATCH; i++) {
		fill_send(loop, &wr[i], &sge[i]);
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
	}
	return ibv_post_send(loop->qp, wr, &bad) ? -1 : count;
}

MEASURED(batch_classic)

static inline int batch_extended(struct loop *loop)
{
	int count = poll_classic(loop);

	return post_extended(loop, BATCH) ? -1 : count;
}

MEASURED(batch_extended)

/* Batches of fewer requests. */
#define MEASURED_BATCH_OF(n)								\
	static inline int batch_of_##n(struct loop *loop)					\
	{											\
		int count = poll_classic(loop);							\
												\
		return post_extended(loop, n) ? -1 : count;					\
	}											\
	MEASURED(batch_of_##n)

MEASURED_BATCH_OF(2)
MEASURED_BATCH_OF(4)
MEASURED_BATCH_OF(8)

/* A poll that finds nothing. */
static inline int poll_empty(struct loop *loop)
{
	return poll_classic(loop);
}

MEASURED(poll_empty)

static inline int batch_stamped(struct loop *loop)
{
	int count = poll_stamped(loop, 0);

	return post_extended(loop, BATCH) ? -1 : count;
}

MEASURED(batch_stamped)

static inline int batch_in_place(struct loop *loop)
{
	int count = poll_in_place(loop, 0);

	return post_extended(loop, BATCH) ? -1 : count;
}

MEASURED(batch_in_place)

static inline int post_recv(struct loop *loop)
{
	struct ibv_sge sge = { .addr = (uintptr_t)loop->memory, .length = loop->length, .lkey = loop->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = loop->next++, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(loop->qp, &wr, &bad);
}

static inline int recv_classic(struct loop *loop)
{
	int count = poll_classic(loop);

	return post_recv(loop) ? -1 : count;
}

MEASURED(recv_classic)

static inline int recv_stamped(struct loop *loop)
{
	int count = poll_stamped(loop, 1);

	return post_recv(loop) ? -1 : count;
}

MEASURED(recv_stamped)

static inline int recv_in_place(struct loop *loop)
{
	int count = poll_in_place(loop, 1);

	return post_recv(loop) ? -1 : count;
}

MEASURED(recv_in_place)

/*
 * The variant with a pool of buffers: each request has its own buffer, and wr_id points to it. In
 * the steps with one request, a completed buffer is posted again immediately, as by a program that
 * streams or serves. In batches, the buffers return to a stack. A completed receive stores the
 * length of its message in the buffer.
 */

static inline void fill_send_buffer(struct ibv_send_wr *wr, struct ibv_sge *sge, struct buffer *buffer)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)buffer->start, .length = buffer->length, .lkey = buffer->lkey };
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = (uintptr_t)buffer;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = IBV_SEND_SIGNALED;
}

static inline int post_send_buffer(struct loop *loop, struct buffer *buffer)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	fill_send_buffer(&wr, &sge, buffer);
	return ibv_post_send(loop->qp, &wr, &bad);
}

static inline void write_send_buffer(struct loop *loop, struct buffer *buffer)
{
	loop->qp_ex->wr_id = (uintptr_t)buffer;
	loop->qp_ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(loop->qp_ex);
	ibv_wr_set_sge(loop->qp_ex, buffer->lkey, (uintptr_t)buffer->start, buffer->length);
}

static inline int post_send_buffer_extended(struct loop *loop, struct buffer *buffer)
{
	ibv_wr_start(loop->qp_ex);
	write_send_buffer(loop, buffer);
	return ibv_wr_complete(loop->qp_ex);
}

static inline int post_recv_buffer(struct loop *loop, struct buffer *buffer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buffer->start, .length = buffer->capacity, .lkey = buffer->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(loop->qp, &wr, &bad);
}

static inline int keep_buffer(struct loop *loop, struct buffer *buffer)
{
	loop->free[loop->free_count++] = buffer;
	return 0;
}

static inline int poll_classic_buffers(struct loop *loop, int receives, int (*then)(struct loop *, struct buffer *))
{
	int count = ibv_poll_cq(loop->cq, BATCH, loop->wc);

	for (int i = 0; i < count; i++) {
		struct buffer *buffer = (struct buffer *)(uintptr_t)loop->wc[i].wr_id;

		if (loop->wc[i].status != IBV_WC_SUCCESS)
			return -1;
		if (receives)
			buffer->length = loop->wc[i].byte_len;
		if (then(loop, buffer))
			return -1;
	}
	return count;
}

static inline int poll_stamped_buffers(struct loop *loop, int receives, int (*then)(struct loop *, struct buffer *))
{
	int count = copy_stamped(loop, receives);

	for (int i = 0; i < count; i++) {
		struct completion *completion = &loop->completions[i];
		struct buffer *buffer = (struct buffer *)(uintptr_t)completion->wr_id;

		if (completion->status != IBV_WC_SUCCESS)
			return -1;
		loop->last.timestamp = completion->timestamp;
		if (receives)
			buffer->length = completion->byte_len;
		if (then(loop, buffer))
			return -1;
	}
	return count;
}

static inline int poll_in_place_buffers(struct loop *loop, int receives, int (*then)(struct loop *, struct buffer *))
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0, ret = ibv_start_poll(loop->cq_ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -1;
	do {
		struct buffer *buffer = (struct buffer *)(uintptr_t)loop->cq_ex->wr_id;

		if (loop->cq_ex->status != IBV_WC_SUCCESS) {
			count = -1;
			break;
		}
		read_fields(loop, &loop->last, receives);
		if (receives)
			buffer->length = loop->last.byte_len;
		if (then(loop, buffer)) {
			count = -1;
			break;
		}
		count++;
	} while (count < BATCH && !(ret = ibv_next_poll(loop->cq_ex)));
	ibv_end_poll(loop->cq_ex);
	return ret && ret != ENOENT ? -1 : count;
}

/* Posts the first requests, before the measurement. */
int c_loop_post_first(struct loop *loop, int receives, int count)
{
	while (count--) {
		struct buffer *buffer = loop->free[--loop->free_count];

		if (receives ? post_recv_buffer(loop, buffer) : post_send_buffer(loop, buffer))
			return -1;
	}
	return 0;
}

static inline int send_buf_classic(struct loop *loop)
{
	return poll_classic_buffers(loop, 0, post_send_buffer);
}

MEASURED(send_buf_classic)

static inline int send_buf_extended(struct loop *loop)
{
	return poll_classic_buffers(loop, 0, post_send_buffer_extended);
}

MEASURED(send_buf_extended)

static inline int send_buf_stamped(struct loop *loop)
{
	return poll_stamped_buffers(loop, 0, post_send_buffer_extended);
}

MEASURED(send_buf_stamped)

static inline int send_buf_in_place(struct loop *loop)
{
	return poll_in_place_buffers(loop, 0, post_send_buffer_extended);
}

MEASURED(send_buf_in_place)

static inline int recv_buf_classic(struct loop *loop)
{
	return poll_classic_buffers(loop, 1, post_recv_buffer);
}

MEASURED(recv_buf_classic)

static inline int recv_buf_stamped(struct loop *loop)
{
	return poll_stamped_buffers(loop, 1, post_recv_buffer);
}

MEASURED(recv_buf_stamped)

static inline int recv_buf_in_place(struct loop *loop)
{
	return poll_in_place_buffers(loop, 1, post_recv_buffer);
}

MEASURED(recv_buf_in_place)

static inline int batch_buf_classic(struct loop *loop)
{
	static struct ibv_send_wr wr[BATCH];
	static struct ibv_sge sge[BATCH];
	struct ibv_send_wr *bad;
	int count = poll_classic_buffers(loop, 0, keep_buffer);

	for (int i = 0; i < BATCH; i++) {
		fill_send_buffer(&wr[i], &sge[i], loop->free[--loop->free_count]);
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
	}
	return ibv_post_send(loop->qp, wr, &bad) ? -1 : count;
}

MEASURED(batch_buf_classic)

static inline int post_batch_buffers(struct loop *loop)
{
	ibv_wr_start(loop->qp_ex);
	for (int i = 0; i < BATCH; i++)
		write_send_buffer(loop, loop->free[--loop->free_count]);
	return ibv_wr_complete(loop->qp_ex);
}

static inline int batch_buf_extended(struct loop *loop)
{
	int count = poll_classic_buffers(loop, 0, keep_buffer);

	return post_batch_buffers(loop) ? -1 : count;
}

MEASURED(batch_buf_extended)

static inline int batch_buf_stamped(struct loop *loop)
{
	int count = poll_stamped_buffers(loop, 0, keep_buffer);

	return post_batch_buffers(loop) ? -1 : count;
}

MEASURED(batch_buf_stamped)

static inline int batch_buf_in_place(struct loop *loop)
{
	int count = poll_in_place_buffers(loop, 0, keep_buffer);

	return post_batch_buffers(loop) ? -1 : count;
}

MEASURED(batch_buf_in_place)
