/*
 * What the safe data path is measured against: the same steps as a careful C program takes them, through the same function tables.
 *
 * A program of this kind keeps its requests apart by wr_id, checks every status and whether a poll failed (as rdma-core's ibv_rc_pingpong does),
 * ends each poll that it began, and fills each request anew, as one does that sends from
 * changing places. There are two of them: one has a single registered buffer, the other a pool of them and looks for the one it posted with.
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

struct side {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_mr *mr;
	char *memory;
	uint32_t length;
	uint64_t next;
	struct ibv_wc wc[BATCH];
	/* The pool, and a stack as long. */
	struct buffer *buffers;
	struct buffer **free;
	unsigned int free_count;
};

struct side *c_side_new(struct ibv_qp *qp, struct ibv_cq *cq, int extended_cq, uint32_t count, uint32_t length)
{
	struct side *side = calloc(1, sizeof(*side));

	if (!side)
		return NULL;
	side->qp = qp;
	side->qp_ex = ibv_qp_to_qp_ex(qp);
	side->cq = cq;
	side->cq_ex = extended_cq ? (struct ibv_cq_ex *)cq : NULL;
	side->length = length;
	side->memory = calloc(count, length);
	side->buffers = calloc(count, sizeof(*side->buffers));
	side->free = calloc(count, sizeof(*side->free));
	side->mr = ibv_reg_mr(qp->pd, side->memory, (size_t)count * length, IBV_ACCESS_LOCAL_WRITE);
	for (uint32_t i = 0; i < count; i++) {
		side->buffers[i] = (struct buffer){
			.start = side->memory + (size_t)i * length,
			.lkey = side->mr->lkey,
			.capacity = length,
			.length = length,
		};
		side->free[side->free_count++] = &side->buffers[i];
	}
	return side;
}

void c_side_free(struct side *side)
{
	ibv_dereg_mr(side->mr);
	free(side->free);
	free(side->buffers);
	free(side->memory);
	free(side);
}

/*
 * A measured program: the step again and again, with what the other end of the connection does before each, which is not counted. Each
 * time all of its requests complete.
 */
#define MEASURED(name)												\
	int measured_c_##name(struct side *side, int times, int requests, int (*aside)(void *), void *rig)	\
	{													\
		for (int i = 0; i < times; i++)									\
			if (aside(rig) || name(side) != requests)						\
				return -1;									\
		return 0;											\
	}

static inline int poll_classic(struct side *side)
{
	int count = ibv_poll_cq(side->cq, BATCH, side->wc);

	for (int i = 0; i < count; i++)
		if (side->wc[i].status != IBV_WC_SUCCESS)
			return -1;
	return count;
}

static inline int poll_extended(struct side *side)
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0, ret = ibv_start_poll(side->cq_ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -1;
	do {
		if (side->cq_ex->status != IBV_WC_SUCCESS) {
			count = -1;
			break;
		}
		count++;
	} while (count < BATCH && !(ret = ibv_next_poll(side->cq_ex)));
	ibv_end_poll(side->cq_ex);
	return ret && ret != ENOENT ? -1 : count;
}

static inline void fill_send(struct side *side, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)side->memory, .length = side->length, .lkey = side->mr->lkey };
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = side->next++;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = IBV_SEND_SIGNALED;
}

static inline void write_send(struct side *side)
{
	side->qp_ex->wr_id = side->next++;
	side->qp_ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(side->qp_ex);
	ibv_wr_set_sge(side->qp_ex, side->mr->lkey, (uintptr_t)side->memory, side->length);
}

static inline int send_classic(struct side *side)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	fill_send(side, &wr, &sge);
	if (ibv_post_send(side->qp, &wr, &bad))
		return -1;
	return poll_classic(side);
}

MEASURED(send_classic)

static inline int post_extended(struct side *side, int count)
{
	ibv_wr_start(side->qp_ex);
	for (int i = 0; i < count; i++)
		write_send(side);
	return ibv_wr_complete(side->qp_ex);
}

static inline int send_extended(struct side *side)
{
	return post_extended(side, 1) ? -1 : poll_classic(side);
}

MEASURED(send_extended)

static inline int send_extended_poll(struct side *side)
{
	return post_extended(side, 1) ? -1 : poll_extended(side);
}

MEASURED(send_extended_poll)

static inline int batch_classic(struct side *side)
{
	static struct ibv_send_wr wr[BATCH];
	static struct ibv_sge sge[BATCH];
	struct ibv_send_wr *bad;

	for (int i = 0; i < BATCH; i++) {
		fill_send(side, &wr[i], &sge[i]);
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
	}
	if (ibv_post_send(side->qp, wr, &bad))
		return -1;
	return poll_classic(side);
}

MEASURED(batch_classic)

static inline int batch_extended(struct side *side)
{
	return post_extended(side, BATCH) ? -1 : poll_classic(side);
}

MEASURED(batch_extended)

static inline int batch_extended_poll(struct side *side)
{
	return post_extended(side, BATCH) ? -1 : poll_extended(side);
}

MEASURED(batch_extended_poll)

static inline int post_recv(struct side *side)
{
	struct ibv_sge sge = { .addr = (uintptr_t)side->memory, .length = side->length, .lkey = side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = side->next++, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(side->qp, &wr, &bad);
}

static inline int recv_classic(struct side *side)
{
	int count = poll_classic(side);

	return post_recv(side) ? -1 : count;
}

MEASURED(recv_classic)

static inline int recv_extended_poll(struct side *side)
{
	int count = poll_extended(side);

	return post_recv(side) ? -1 : count;
}

MEASURED(recv_extended_poll)

/*
 * With a pool of buffers: each request has one of its own, which wr_id leads to. One at a time, the buffer that comes back is posted again at once,
 * as a program streams or serves; of a batch, all go to a stack and come from there. Sends know their length, receives are told it.
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

static inline int post_send_buffer(struct side *side, struct buffer *buffer)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	fill_send_buffer(&wr, &sge, buffer);
	return ibv_post_send(side->qp, &wr, &bad);
}

static inline void write_send_buffer(struct side *side, struct buffer *buffer)
{
	side->qp_ex->wr_id = (uintptr_t)buffer;
	side->qp_ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(side->qp_ex);
	ibv_wr_set_sge(side->qp_ex, buffer->lkey, (uintptr_t)buffer->start, buffer->length);
}

static inline int post_send_buffer_extended(struct side *side, struct buffer *buffer)
{
	ibv_wr_start(side->qp_ex);
	write_send_buffer(side, buffer);
	return ibv_wr_complete(side->qp_ex);
}

static inline int post_recv_buffer(struct side *side, struct buffer *buffer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buffer->start, .length = buffer->capacity, .lkey = buffer->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(side->qp, &wr, &bad);
}

static inline int keep_buffer(struct side *side, struct buffer *buffer)
{
	side->free[side->free_count++] = buffer;
	return 0;
}

static inline int poll_classic_buffers(struct side *side, int receives, int (*then)(struct side *, struct buffer *))
{
	int count = ibv_poll_cq(side->cq, BATCH, side->wc);

	for (int i = 0; i < count; i++) {
		struct buffer *buffer = (struct buffer *)(uintptr_t)side->wc[i].wr_id;

		if (side->wc[i].status != IBV_WC_SUCCESS)
			return -1;
		if (receives)
			buffer->length = side->wc[i].byte_len;
		if (then(side, buffer))
			return -1;
	}
	return count;
}

static inline int poll_extended_buffers(struct side *side, int receives, int (*then)(struct side *, struct buffer *))
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0, ret = ibv_start_poll(side->cq_ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -1;
	do {
		struct buffer *buffer = (struct buffer *)(uintptr_t)side->cq_ex->wr_id;

		if (side->cq_ex->status != IBV_WC_SUCCESS) {
			count = -1;
			break;
		}
		if (receives)
			buffer->length = ibv_wc_read_byte_len(side->cq_ex);
		if (then(side, buffer)) {
			count = -1;
			break;
		}
		count++;
	} while (count < BATCH && !(ret = ibv_next_poll(side->cq_ex)));
	ibv_end_poll(side->cq_ex);
	return ret && ret != ENOENT ? -1 : count;
}

/* The first requests, before what is measured. */
int c_side_begin(struct side *side, int receives, int count)
{
	while (count--) {
		struct buffer *buffer = side->free[--side->free_count];

		if (receives ? post_recv_buffer(side, buffer) : post_send_buffer(side, buffer))
			return -1;
	}
	return 0;
}

static inline int send_buf_classic(struct side *side)
{
	return poll_classic_buffers(side, 0, post_send_buffer);
}

MEASURED(send_buf_classic)

static inline int send_buf_extended(struct side *side)
{
	return poll_classic_buffers(side, 0, post_send_buffer_extended);
}

MEASURED(send_buf_extended)

static inline int send_buf_extended_poll(struct side *side)
{
	return poll_extended_buffers(side, 0, post_send_buffer_extended);
}

MEASURED(send_buf_extended_poll)

static inline int recv_buf_classic(struct side *side)
{
	return poll_classic_buffers(side, 1, post_recv_buffer);
}

MEASURED(recv_buf_classic)

static inline int recv_buf_extended_poll(struct side *side)
{
	return poll_extended_buffers(side, 1, post_recv_buffer);
}

MEASURED(recv_buf_extended_poll)

static inline int batch_buf_classic(struct side *side)
{
	static struct ibv_send_wr wr[BATCH];
	static struct ibv_sge sge[BATCH];
	struct ibv_send_wr *bad;

	for (int i = 0; i < BATCH; i++) {
		fill_send_buffer(&wr[i], &sge[i], side->free[--side->free_count]);
		wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
	}
	if (ibv_post_send(side->qp, wr, &bad))
		return -1;
	return poll_classic_buffers(side, 0, keep_buffer);
}

MEASURED(batch_buf_classic)

static inline int post_batch_buffers(struct side *side)
{
	ibv_wr_start(side->qp_ex);
	for (int i = 0; i < BATCH; i++)
		write_send_buffer(side, side->free[--side->free_count]);
	return ibv_wr_complete(side->qp_ex);
}

static inline int batch_buf_extended(struct side *side)
{
	return post_batch_buffers(side) ? -1 : poll_classic_buffers(side, 0, keep_buffer);
}

MEASURED(batch_buf_extended)

static inline int batch_buf_extended_poll(struct side *side)
{
	return post_batch_buffers(side) ? -1 : poll_extended_buffers(side, 0, keep_buffer);
}

MEASURED(batch_buf_extended_poll)
