// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// What the program knows about the kernel: the types of the helpers' header and
// the fields that are read. Their offsets are put in when the program is loaded
// (CO-RE), so the structs need neither be complete nor in order.
#ifndef QUIETCORE_KERNEL_H
#define QUIETCORE_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false, true };

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
};

#define BPF_F_MMAPABLE (1u << 10)
#define BPF_F_CURRENT_CPU 0xffffffffull
#define BPF_NOEXIST 1

struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct task_struct;

struct rq {
	__u64 clock;
	__u64 clock_task;
	struct task_struct *curr;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	__u64 exec_start;
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct task_struct {
	int pid;
	struct css_set *cgroups;
	struct sched_entity se;
	struct sched_info sched_info;
};

struct hrtimer {
	__u8 is_soft;
};

#pragma clang attribute pop

// The number differs from kernel to kernel; only the name is meant.
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

#endif
