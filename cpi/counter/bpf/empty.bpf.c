// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What counting is compared with: programs that read the same events at the same
// places, and do nothing with them.
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define PERF_EVENT_ARRAY(name)                                                                                         \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);                                                           \
		__type(key, __u32);                                                                                    \
		__type(value, __u32);                                                                                  \
		__uint(max_entries, 1);                                                                                \
	} name SEC(".maps")

PERF_EVENT_ARRAY(event_0);
PERF_EVENT_ARRAY(event_1);
PERF_EVENT_ARRAY(event_2);
PERF_EVENT_ARRAY(event_3);

static __always_inline int read_all(void)
{
	struct bpf_perf_event_value value;

	bpf_perf_event_read_value(&event_0, BPF_F_CURRENT_CPU, &value, sizeof(value));
	bpf_perf_event_read_value(&event_1, BPF_F_CURRENT_CPU, &value, sizeof(value));
	bpf_perf_event_read_value(&event_2, BPF_F_CURRENT_CPU, &value, sizeof(value));
	bpf_perf_event_read_value(&event_3, BPF_F_CURRENT_CPU, &value, sizeof(value));
	return 0;
}

SEC("tp_btf/sched_switch")
int empty_sched_switch(__u64 *ctx)
{
	return read_all();
}

SEC("perf_event")
int empty_cgroup_switch(void *ctx)
{
	return read_all();
}
