// Package cpi says what a container is to the parts that count CPU performance and
// look for interference: one [Container], which every part passes on and none changes.
// The parts are the packages below this one, in the order in which a sample passes them:
//
//   - counter counts cycles, instructions and time on the CPU of every cgroup, in the
//     kernel, and adds them up to totals that only grow;
//   - sampler opens a window of 10 s in every minute, reads the totals at both of its
//     ends, and publishes what came out of it;
//   - sample compares the two readings: it makes the samples, or says why there is none;
//   - loop gives every window to the detector, has the policy carry out what the
//     detector decides, and reports both;
//   - detect learns what is normal for a job, notices when a container is slower than
//     that, and finds the neighbour to blame;
//   - record makes incidents of it, which people read.
//
// A Container is made from a snapshot of the policy at each end of a window, by
// loop.View. The sample points to it, the detector keeps it, and so do its findings,
// so that an incident names the containers of the very window that it is about.
//
// sample and detect are pure: they read no clock and do no I/O, and the same input has
// the same result. counter is the part that needs Linux and its privileges; sampler and
// loop have a goroutine each, and nothing in the daemon waits for either.
package cpi
