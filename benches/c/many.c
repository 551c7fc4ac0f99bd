/*
 * Sends messages in turn on many queue pairs, which are connected with each other within the
 * process, and prints the messages per second. At most one message is in flight on a queue pair.
 *
 * usage: many DEVICE GID_INDEX QUEUE_PAIRS DEPTH SIZE MILLISECONDS
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <time.h>

#define POLL 32

static struct ibv_mr *mr;
static uint32_t size;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp)
		die("ibv_create_qp");
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid *gid, uint8_t gid_index)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	if (ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("ibv_modify_qp");
}

static void post_receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr + size, .length = size, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

static void post_send(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = size, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	struct ibv_qp **from, **to;
	struct ibv_wc wc[POLL];
	union ibv_gid gid;
	uint64_t posted = 0, arrived = 0, sent = 0, start, end;
	uint32_t count, depth;
	uint8_t gid_index, *busy;

	if (argc != 7) {
		fprintf(stderr, "usage: many DEVICE GID_INDEX QUEUE_PAIRS DEPTH SIZE MILLISECONDS\n");
		return 2;
	}
	for (; devices && *devices && !context; devices++)
		if (!strcmp(ibv_get_device_name(*devices), argv[1]))
			context = ibv_open_device(*devices);
	gid_index = (uint8_t)atoi(argv[2]);
	count = (uint32_t)atoi(argv[3]);
	depth = (uint32_t)atoi(argv[4]);
	size = (uint32_t)atoi(argv[5]);
	if (!context || ibv_query_gid(context, 1, gid_index, &gid))
		die(argv[1]);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, (int)(2 * count), NULL, NULL, 0);

	from = calloc(count, sizeof(*from));
	to = calloc(count, sizeof(*to));
	busy = calloc(count, 1);
	mr = pd ? ibv_reg_mr(pd, calloc(2, size), 2 * (size_t)size, IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!cq || !mr || !from || !to || !busy)
		die("ibv_create_cq");
	for (uint32_t i = 0; i < count; i++) {
		from[i] = new_qp(pd, cq);
		to[i] = new_qp(pd, cq);
		connect_to(from[i], to[i]->qp_num, &gid, gid_index);
		connect_to(to[i], from[i]->qp_num, &gid, gid_index);
		post_receive(to[i], i);
	}
	start = now();
	end = start + (uint64_t)atoi(argv[6]) * 1000000;
	while (now() < end) {
		while (posted - sent < depth && posted - arrived < depth && !busy[posted % count]) {
			busy[posted % count] = 2;
			post_send(from[posted % count], posted % count);
			posted++;
		}
		int polled = ibv_poll_cq(cq, POLL, wc);

		for (int i = 0; i < polled; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "many: %s\n", ibv_wc_status_str(wc[i].status));
				return 1;
			}
			busy[wc[i].wr_id]--;
			if (wc[i].opcode & IBV_WC_RECV) {
				post_receive(to[wc[i].wr_id], wc[i].wr_id);
				arrived++;
			} else {
				sent++;
			}
		}
		if (!polled)
			sched_yield();
	}
	printf("%.0f\n", (double)arrived * 1e9 / (double)(now() - start));
	return 0;
}
