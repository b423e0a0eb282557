// Package loop closes the circle from windows of counting to caps and back: it
// gives the detector what runs and how it ran, has the policy carry out what the
// detector wants, and tells people about both. It decides nothing itself.
//
//	sampler.Window -> Take -> node.go  what runs, in the detector's words
//	                       -> loop.go  the detector, its commands, its deadlines
//	                       -> finding.go  Events on the pods, findings for the record
package loop
