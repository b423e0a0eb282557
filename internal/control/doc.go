// Package control is the interface of a running daemon for people and tests: HTTP over unix sockets
// that only root can open.
//
//	GET /v1/status   where each pod runs, the pools, whether everything is written
//	GET /v1/summary  the node in a few numbers, and what is wrong with it
//	GET /v1/explain?pod=NAMESPACE/POD   why a pod has the CPUs it has
//	GET /v1/top      what every container uses, and its cycles per instruction
//	GET /v1/report   what the last day was like, and what enforcing would have changed
//	GET /v1/incidents          what interference did, the newest first
//	GET /v1/incidents/top      the pairs of victim and antagonist with the most incidents
//	GET /v1/incidents/one/ID   one of them with everything
//	GET /v1/incidents/export   all of them, a line each
//	GET /v1/mode               the mode in force, and why
//	POST /v1/mode/WORD         sets it: observe, enforce or config
//	GET /v1/doctor   what keeps the daemon from working
//	GET /v1/bundle   the archive of a bug report
//	GET /v1/record   what happened, as a script that `quietcore simulate` replays
//
// [Server.Remote] answers other machines: the same without the mode and the record, below
// /quietcore, to those whom the API server allows each path.
//
// A second socket exists only in daemons started for tests. It takes events that
// in production come from elsewhere, and moves the daemon's clock:
//
//	POST /event {"cap": {"pod": "batch", "container": "main", "cpu": 0.1, "seconds": 300}}
//	POST /event {"advance": {"seconds": 60}}
//	POST /event {"nodeLabels": {"node.koordinator.sh/cpu-bind-policy": null}}
package control
