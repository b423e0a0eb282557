// Package incidents keeps what interference did on this node: who was slowed
// down, who was suspected and why, what was done about it, and whether that
// helped. A Store is one file, bounded in size and age. Put never waits: what the
// disk cannot take is counted and dropped, and nothing else on the node notices.
//
//	s := incidents.New(incidents.Options{Path: "/var/lib/quietcore/incidents.db"})
//	go s.Run(ctx)
//	s.Put(incident)                                   // new, or what is known by now
//	s.Top(ctx, incidents.TopQuery{Victim: "web"})     // who hurt web most
//
// A file that was damaged is put aside and a new one begun; one of a newer
// version is left alone. Every file is walked before the library that maps it
// into memory may touch it, since damage there would end the whole daemon.
package incidents
