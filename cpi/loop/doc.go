// Package loop connects the sampler, the detector and the policy. A [Loop] passes each
// window to the detector, submits the detector's commands to the policy, and reports
// both. It decides nothing itself.
//
//	sampler.Window -> Loop.Take -> node.go     what runs, as the detector sees it
//	                            -> loop.go     the order of things: judge, save, submit
//	                            -> watcher.go  package detect, its commands, its deadlines
//	                            -> trials.go   package experiment, its coins and throttles
//	                            -> finding.go  Events on pods, findings for the record
//
// A [View] converts a snapshot of the policy to the containers of a window. A [Finding]
// is what the detector reported, with references resolved to containers.
package loop
