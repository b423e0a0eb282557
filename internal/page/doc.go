// Package page serves the operator's web page: the machine drawn as sockets, NUMA
// nodes, L3s, cores and threads, the owners of CPUs and why, pools, CPI and caps over
// the last day, and incidents.
//
//	GET /                          the page; it loads /assets/… and nothing else
//	GET /api/state                 everything as one document
//	GET /api/stream                the same as server-sent events, whenever a part of it changes
//	GET /api/history               the timeline: ten seconds a point for an hour, two minutes for a day
//	GET /api/report                what the last day was like, and what enforcing would have changed
//	GET /api/containers/ID/samples CPI of one container
//	GET /api/incidents/ID          one incident
//	GET /incidents/ID.svg, .html   its plot, and a page that stands alone
//
// A [Page] takes a [Look] at the daemon once a second and encodes what changed. It is
// read-only. It listens on loopback or a Unix socket only, and answers only to names of
// this machine, so that no web site can read it by DNS rebinding. No other origin may
// frame, script or read it. Names come from tenants: no answer contains their control
// characters, and the page never interprets text as markup.
//
// Readers cost a bounded amount. Each message is encoded once for all of them. A slow
// reader skips states and never delays others. Connections, streams and concurrent
// answers are limited.
package page
