// Package incidents stores what interference did on this node. An [Incident] has the
// victim, the suspects and the evidence, the actions, and whether they helped.
//
// A [Store] is one file, bounded in size and age. Put never blocks: what the disk
// cannot take is counted and dropped. A [Reader] reads the file while no daemon runs;
// both are a [Source].
//
//	s := incidents.New(incidents.Options{Path: "/var/lib/quietcore/incidents.db"})
//	go s.Run(ctx)
//	s.Put(incident)                                   // new or updated
//	s.Top(ctx, incidents.TopQuery{Victim: "web"})     // what hurt web most
//
// A damaged file is renamed and replaced by a new one; a file of a newer version is
// left alone. Every file is verified before the library that maps it into memory opens
// it, since damage there would crash the daemon.
package incidents
