// Package cpi defines [Container], the view of a container that all parts of CPI
// measurement and interference detection share. The parts are the packages below, in
// the order in which a sample passes them:
//
//   - counter counts cycles, instructions and time on the CPU of every cgroup, in the
//     kernel, and adds them to totals that only grow;
//   - sampler opens a window of 10 s in every minute, reads the totals at both edges,
//     and publishes the result;
//   - sample compares the two readings: it makes a sample, or says why there is none;
//   - loop passes every window to the detector, submits the detector's commands to the
//     policy, and reports both;
//   - detect learns what is normal for a job, notices when a container is slower, and
//     finds the antagonist;
//   - record makes incidents of the detector's findings, for people.
//
// loop.View makes Containers from a snapshot of the policy at each edge of a window.
// Samples, the detector and its findings point to the same Container, so that an
// incident describes the containers of the very window that caused it.
//
// sample and detect are pure: they read no clock and do no I/O, and the same input has
// the same result. counter needs Linux and privileges. sampler and loop each have a
// goroutine, and nothing else in the daemon waits for them.
package cpi
