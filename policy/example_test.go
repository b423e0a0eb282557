package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// eightCPUs is a machine of four cores with two threads each.
func eightCPUs() *policy.Machine {
	t, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		panic(err)
	}
	m, err := policy.New(t, policy.Config{})
	if err != nil {
		panic(err)
	}
	return m
}

// database is a pod of class LSR that asks for CPUs of its own.
func database(milli int64) policy.Pod {
	return policy.Pod{
		UID: "uid-db", Sandbox: "sandbox-db", Namespace: "default", Name: "db", QoS: policy.Guaranteed,
		Labels:    map[string]string{policy.LabelClass: "LSR"},
		Resources: &policy.Resources{RequestMilli: milli, LimitMilli: milli},
	}
}

// The shared pool shrinks before the owner gets its CPUs.
func ExampleMachine_Step() {
	m := eightCPUs()
	decisions, err := m.Step(time.Now(), policy.PodRun{Pod: database(2000)})
	if err != nil {
		fmt.Println(err)
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPool:
			fmt.Println("pool", d.ID, "has CPUs", d.CPUs)
		case policy.SetPod:
			fmt.Println("pod", d.Pod.Name, "runs on CPUs", d.Need.Own)
		}
	}
	// Output:
	// pool shared has CPUs 2-7
	// pod db runs on CPUs 0-1
}

// A refusal leaves the machine unchanged; its code is for programs.
func ExampleRefusal() {
	m := eightCPUs()
	_, err := m.Step(time.Now(), policy.PodRun{Pod: database(2500)})
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code)
		fmt.Println(refusal.Message)
	}
	// Output:
	// InvalidRequest
	// LSR pods need a whole number of CPUs, this pod requests 2500m; request a multiple of 1000m
}

// A checkpoint restores the allocations in a new machine of the same node.
func ExampleMachine_Checkpoint() {
	before := eightCPUs()
	if _, err := before.Step(time.Now(), policy.PodRun{Pod: database(2000)}); err != nil {
		fmt.Println(err)
	}
	after := eightCPUs()
	if _, err := after.Step(time.Now(), before.Checkpoint()); err != nil {
		fmt.Println(err)
	}
	for _, o := range after.Snapshot().Owners {
		fmt.Println(o.Namespace, o.Pod, o.CPUs)
	}
	// Output:
	// default db 0-1
}
