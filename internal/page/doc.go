// Package page is what an operator sees in a browser: the machine drawn as
// sockets, NUMA nodes, L3s, cores and threads, who has which and why, pools, CPI
// and caps over the last day, and what interference did.
//
//	GET /                          the page; it loads /assets/… and nothing else
//	GET /api/state                 everything as one document
//	GET /api/stream                the same as server-sent events, whenever a part of it changes
//	GET /api/history               the timeline: ten seconds a point for an hour, two minutes for a day
//	GET /api/containers/ID/samples CPI of one container
//	GET /api/incidents/ID          one incident
//	GET /incidents/ID.svg, .html   its plot, and a page that stands alone
//
// Nothing can be changed through it. It listens on loopback or on a Unix socket
// only, answers only to names of this machine (so that no web site can read it by
// pointing its own name here), and lets itself be framed, scripted or read by no
// other origin. Names come from tenants: whatever they hold, no answer has a
// control character of theirs, and the page never reads text as markup.
//
// Readers cost a bounded amount: what is sent is encoded once for all of them,
// a reader that is slow misses states in between and never makes others wait, and
// connections, streams and answers at work at a time have limits.
package page
