// Package cdi reads which CPUs DRA drivers other than Quietcore gave to claims: from the specs of the Container Device
// Interface in directories of root's, never from a container's environment, which its user writes.
//
//	s := cdi.New(cdi.Options{Dirs: cdi.Dirs(), Take: take, Log: log})
//	s.Look(ctx)
//	go s.Watch(ctx)
//
// dra-driver-cpu (driver dra.cpu) writes one spec a claim, of kind dra.k8s.io/cpu with one device claim-<UID>, whose
// only edit is the variable DRA_CPUSET_<UID> with the list of CPUs. [Parse] is pure.
//
// [Own] writes the specs of Quietcore's own driver, which say which container has which request of a claim.
package cdi
