package plugin

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	sim "github.com/quietcore/quietcore/internal/world"
)

var (
	worldSeed   = flag.Uint64("world.seed", 0, "play this seed alone and show everything that happens")
	worldFrom   = flag.Uint64("world.from", 1, "the first of the world's seeds")
	worldSeeds  = flag.Int("world.seeds", 60, "how many seeds of the world to play")
	worldNew    = flag.Int("world.new", 6, "how many seeds that no run has played before")
	worldSteps  = flag.Int("world.steps", 300, "choices in a seed's life")
	worldFaults = flag.String("world.faults", "all", "what goes wrong, with commas")
	worldAll    = flag.Bool("world.plain", false, "every seed has all of these faults, and only writes and saves wait")
	worldTrace  = flag.String("world.trace", "", "play the choices in this file, and show everything that happens")
	worldShort  = flag.Bool("world.shorten", true, "leave out the choices that a failure does not need")
	worldSame   = flag.Int("world.same", 5, "how many seeds of the world to replay")
	worldAgain  = flag.Int("world.again", 2, "how often to replay each, on one processor and on two")
)

// defects are those that the world has found, each with the seed, the faults and the
// trace that show it. An open one has to be seen, a mended one must not.
var defects = []struct {
	name   string // of its trace in testdata/world
	seed   uint64
	faults []sim.Fault
	breaks sim.Property
	open   bool
	what   string
}{
	{"D1", 73, []sim.Fault{sim.Errors}, sim.PropStart, false,
		"what could not shrink is forgotten before it is tried again"},
	{"D2b", 22, []sim.Fault{sim.Blind}, sim.PropStart, false, "a slice that looked gone is left out for good"},
	{"D5", 1, []sim.Fault{sim.Panics}, sim.PropGrant, false, "a panic at a tick costs the last recorded event"},
	{"D5-cap", 1795376909547416029, []sim.Fault{sim.Panics}, sim.PropSettle, false,
		"a panic at the tick that ends a cap keeps the cap"},
	{"D6", 14, []sim.Fault{sim.Errors}, sim.PropStart, false, "a write that is left out is on no list"},
	{"D7", 129, []sim.Fault{sim.LateEffect}, sim.PropMove, false, "a write that timed out takes effect later"},
	{"D9", 137, []sim.Fault{sim.Kills}, sim.PropSettle, false,
		"a container that is started anew while its pod is capped keeps the cap after a restart of the daemon"},
	{"D10", 184, []sim.Fault{sim.Errors, sim.Lies, sim.Blind, sim.Panics, sim.Kills, sim.Unsaid}, sim.PropMove, false,
		"a slice that cannot be seen at the start is left out for good"},
	{"D8", 14, nil, sim.PropBeside, false, "a container without CPUs of its own does not wait for its pod's mask"},
	{"D12", 5, []sim.Fault{sim.LateEffect, sim.Blind, sim.Kills}, sim.PropBeside, false,
		"the first container of a slice that could not be seen at the start does not wait for its mask"},
	{"D11", 5185, []sim.Fault{sim.Kills}, sim.PropGrant, false,
		"a blind reader and no saved state move an owner off the CPUs that the runtime stores"},
	{"D14", 7998, nil, sim.PropBeside, false,
		"a container starts although its slice, which was widened, is not yet narrowed"},
	{"D13", 7436, []sim.Fault{sim.LateEffect, sim.Unplugs}, sim.PropMove, false,
		"CPUs go off while a late write of a slice may be on its way"},
	{"D16", 3223, []sim.Fault{sim.Panics, sim.Kills}, sim.PropGrant, false,
		"another's mask on its way through an owner's CPUs lets a start without saved state distrust both"},
	{"D17", 3496, []sim.Fault{sim.Unplugs}, sim.PropBeside, false,
		"a shared pod starts on an owner's CPUs around CPUs that go off and on"},
	{"D30", 2, []sim.Fault{sim.Defects}, sim.PropDeadline, false,
		"a panic outside the policy's step leaves the request that was handled without an answer"},
	{"D31", 151, []sim.Fault{sim.Defects}, sim.PropStart, false,
		"decisions that the writer panics at twice are left out, and an owner starts on what they were to free"},
	{"D32", 60, []sim.Fault{sim.Defects}, sim.PropSettle, false,
		"a panic after the policy's step loses what was decided"},
	{"D33", 11, []sim.Fault{sim.Defects}, sim.PropAlive, false,
		"a panic while a wait is ended comes again and again, without a pause"},
	{"D34", 20189, []sim.Fault{sim.LateEffect, sim.Panics, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner of which a CPU is off is given another after a restart without saved state"},
	{"D35", 20546, []sim.Fault{sim.Lies, sim.Kills}, sim.PropGrant, false,
		"a mask on an owner's way to its CPUs is taken for its own, although the runtime stores others"},
	{"D36", 20969, []sim.Fault{sim.Errors, sim.LateEffect, sim.Kills}, sim.PropGrant, false,
		"the same, where it has as many CPUs as the owner asks for"},
	{"D37", 20982, []sim.Fault{sim.Blind, sim.Kills}, sim.PropSettle, false,
		"a quota that is decided before it is known who owns what is never written"},
	{"D38", 21313, []sim.Fault{sim.LateEffect, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner loses a CPU that was off while its mask was written and is back after a restart"},
	{"D39", 20546, []sim.Fault{sim.Lies, sim.Kills}, sim.PropGrant, false,
		"the world wanted a new daemon to know CPUs that neither kernel, runtime nor disk has"},
	{"D18", 4325, []sim.Fault{sim.Panics, sim.Kills}, sim.PropSettle, false,
		"the world's disk made a cap that was over run for 292 years"},
	{"D15", 1845, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics, sim.Disk,
		sim.Kills, sim.Reconnects, sim.Unplugs}, sim.PropMove, false,
		"a slice with an owner that nobody sees at the start moves its pods onto the owner's CPUs"},
	{"D19", 34876, []sim.Fault{sim.LateEffect, sim.Unplugs}, sim.PropBeside, false,
		"a shared pod starts on CPUs that its cgroup has since those of its mask went off"},
	{"D20", 50897, nil, sim.PropMove, false,
		"a slice is widened around a pod in it that the tree does not have yet"},
	{"D40", 54, []sim.Fault{sim.Unreadable, sim.Kills}, sim.PropSettle, false,
		"limits that are decided before it is known who owns what are never written"},
	{"D41", 127, []sim.Fault{sim.Panics, sim.Reconnects}, sim.PropSettle, false,
		"what was read for a Synchronize that failed counts after kubelet has resized"},
	{"D43", 344, []sim.Fault{sim.Unreadable, sim.Panics, sim.Kills, sim.Reconnects, sim.Unplugs}, sim.PropSettle,
		false, "an owner that asks while another is unread is never placed"},
	{"D44", 590, []sim.Fault{sim.Kills, sim.Reconnects}, sim.PropSettle, false,
		"a limit that is being put back takes back a resize that comes meanwhile"},
	{"D45", 252, []sim.Fault{sim.Disk, sim.Kills}, sim.PropSettle, false,
		"a resize of a capped container that the daemon did not see is undone"},
	{"D46", 156, []sim.Fault{sim.LateEffect, sim.Kills}, sim.PropGrant, false,
		"the pool's mask of a degraded pod is taken for CPUs of its own where no pod is burstable"},
	{"D47", 311, []sim.Fault{sim.Panics}, sim.PropSettle, false,
		"an answer that waits tells a cap that a panic took out of the record"},
	{"D48", 2826, []sim.Fault{sim.Kills}, sim.PropGrant, false,
		"a mask on the way from own ones outweighs what the runtime stores"},
	{"D49", 1986, []sim.Fault{sim.LateEffect}, sim.PropMove, false,
		"a pod is let loose in a slice that may be widened late"},
	{"D50", 1111, []sim.Fault{sim.Blind, sim.Kills}, sim.PropMove, false,
		"a pod of a slice that is blind at the start is moved onto an owner's CPUs"},
	{"D51", 3258, []sim.Fault{sim.Reconnects}, sim.PropSettle, false,
		"one of two containers keeps the limit of a container that is alone"},
	{"D52", 41554, []sim.Fault{sim.Kills}, sim.PropGrant, false,
		"a burstable owner's mask on the way is taken for CPUs of its own"},
	{"D55", 71444, []sim.Fault{sim.Kills}, sim.PropGrant, false,
		"what a resize added to an owner of two containers is lost by a kill"},
	{"D53", 42471, []sim.Fault{sim.Blind, sim.Kills}, sim.PropSettle, false,
		"a cap is left after a kill where cgroups are blind at the start"},
	{"D54", 23172, []sim.Fault{sim.LateEffect, sim.Kills, sim.Unplugs}, sim.PropMove, false,
		"a plan that was made before CPUs went off goes on after the daemon knows"},
	{"D56", 120278, []sim.Fault{sim.Disk, sim.Kills}, sim.PropSettle, false,
		"a cap is left where the state file is lost and the runtime stores the cap"},
	{"D60", 121003, []sim.Fault{sim.Reconnects}, sim.PropBeside, false,
		"a shared pod does not wait for an owner whose container started while there was no connection"},
	{"D57", 301237, []sim.Fault{sim.Panics, sim.Reconnects}, sim.PropSettle, false,
		"a rebuilt machine takes every limit that the runtime stores for one of ours"},
	{"D58", 400130, []sim.Fault{sim.Kills}, sim.PropSettle, false,
		"after two kills one of two containers has the limit of a container that is alone"},
	{"D59", 400638, []sim.Fault{sim.Kills}, sim.PropMove, false,
		"after a kill a shared pod comes onto an owner's CPUs"},
	{"D70", 122087, []sim.Fault{sim.Lies, sim.Unreadable, sim.Kills}, sim.PropSettle, false,
		"an LS pod is bound to the NUMA node of a mask on its way, which is read after the Synchronize"},
	{"D71", 512331, []sim.Fault{sim.Errors, sim.Lies, sim.Unreadable, sim.Reconnects, sim.Unsaid}, sim.PropMove, false,
		"a mask that is written to hold a pod where it is taken to be lets it back onto an owner's CPUs"},
	{"D72", 0, []sim.Fault{sim.Hangs, sim.Disk, sim.Kills}, sim.PropSettle, false,
		"a cap of an earlier daemon that is read after the Synchronize is left"},
	{"D90", 400004, []sim.Fault{sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"the world wanted a new daemon to know which CPUs a resize took in the memory of the old one"},
	{"D91", 300347, []sim.Fault{sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"a resize that nobody was told of and that no file names is forgotten by a kill, while a CPU goes off"},
	{"D92", 71340, []sim.Fault{sim.Lies, sim.LateEffect, sim.Kills, sim.Reconnects}, sim.PropGrant, false,
		"what the runtime stores of a resize is lost by a kill where the disk hangs"},
	{"D93", 71459, []sim.Fault{sim.LateEffect, sim.Kills}, sim.PropGrant, false,
		"the pool's mask of a pod without a record goes before what the runtime stores of another"},
	{"D73", 601384, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Reconnects}, sim.PropSettle, false,
		"a limit that timed out takes effect after another one was seen there"},
	{"D74", 601243, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Reconnects}, sim.PropSettle, false,
		"a cap that only the cgroup has lets a resize without a connection pass for a limit of ours"},
	{"D94", 2002962, []sim.Fault{sim.Errors, sim.Disk, sim.Kills}, sim.PropGrant, false,
		"a file that a failing disk left behind outweighs what the runtime stores"},
	{"D95", 2000770, []sim.Fault{sim.LateEffect, sim.Kills, sim.Reconnects}, sim.PropSettle, false,
		"a limit that is taken for one of ours by a guess is never kubelet's again"},
	{"D96", 3000839, []sim.Fault{sim.Kills}, sim.PropGrant, false,
		"the world wanted a new daemon to know what a resize left that nothing was told of"},
	{"D97", 3003296, []sim.Fault{sim.Unreadable, sim.Kills, sim.Reconnects}, sim.PropSettle, false,
		"a resize before the Synchronize is undone by a cap in the file where the cgroup cannot be read"},
	{"D75", 624084, []sim.Fault{sim.Lies, sim.Reconnects}, sim.PropMove, false,
		"the pool grows onto CPUs of an owner whose resize is decided and not saved yet"},
	{"D76", 510763, []sim.Fault{sim.Reconnects}, sim.PropMove, false,
		"the world wanted a daemon to keep a pod that it was not told of off an owner's CPUs"},
	{"D98", 4002351, []sim.Fault{sim.LateEffect, sim.Disk, sim.Kills}, sim.PropGrant, false,
		"the record of a pod that is over keeps an owner off what the runtime stores of it"},
	{"D99", 4005049, []sim.Fault{sim.LateEffect, sim.Kills}, sim.PropGrant, false,
		"the mask of an owner that was resized since it was created is taken for the pool's"},
	{"D110", 3001067, []sim.Fault{sim.LateEffect, sim.Panics, sim.Defects}, sim.PropBeside, false,
		"a panic at the result of a write forgets that it may take effect later"},
	{"D111", 4002840, []sim.Fault{sim.LateEffect, sim.Disk, sim.Kills}, sim.PropGrant, false,
		"an owner that grew, without a container and where the disk hung, has the size of the file after a kill"},
	{"D112", 6001990, []sim.Fault{sim.LateEffect, sim.Kills}, sim.PropGrant, false,
		"an owner that was given CPUs where the disk hung is in the pool again after a kill"},
	{"D113", 4002840, []sim.Fault{sim.LateEffect, sim.Blind, sim.Kills}, sim.PropGrant, false,
		"a resize is not waited for to be saved where an earlier place of its owner was waited for in vain"},
	{"D114", 4002840, []sim.Fault{sim.LateEffect, sim.Blind, sim.Kills}, sim.PropGrant, false,
		"masks change before a resize is saved where the save that is under way has the former place"},
	{"D115", 6003779, []sim.Fault{sim.Lies, sim.LateEffect, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner that waited loses after a kill the CPUs that another gave up and the file still gives that one"},
	{"D116", 6100100, []sim.Fault{sim.Panics, sim.Unplugs}, sim.PropMove, false,
		"a CPU that was off without the daemon's knowing limits a plan that is carried out when it is back"},
	{"D117", 6100100, []sim.Fault{sim.Panics, sim.Unplugs}, sim.PropMove, false,
		"the same, where it comes back while the plan is carried out"},
	{"D118", 6110739, []sim.Fault{sim.Disk, sim.Hangs, sim.Unplugs}, sim.PropSettle, false,
		"a cap that comes while an update waits is in the runtime's store, and nobody knows"},
	{"D119", 6110854, []sim.Fault{sim.Hangs, sim.Disk, sim.Kills}, sim.PropSettle, false,
		"a cap that only the runtime has is followed by the limit from before a resize"},
	{"D120", 6020683, []sim.Fault{sim.Defects, sim.Disk, sim.Kills}, sim.PropSettle, false,
		"what was taken over in a Synchronize that failed is taken from the file again"},
	{"D121", 6110613, []sim.Fault{sim.Defects}, sim.PropGrant, false,
		"the place of a pod whose event a panic left out counts as saved when it comes again"},
	{"D122", 6022068, []sim.Fault{sim.Lies, sim.Hangs, sim.Defects, sim.Kills, sim.Reconnects}, sim.PropMove, false,
		"a mask that was to shrink takes the CPUs that were given to another from both"},
	{"D124", 6022662, []sim.Fault{sim.Defects, sim.Kills}, sim.PropGrant, false,
		"owners that were found in a Synchronize that failed are answered before they are saved"},
	{"D125", 6022092, []sim.Fault{sim.Lies, sim.LateEffect, sim.Disk, sim.Kills, sim.Reconnects, sim.Unplugs},
		sim.PropGrant, false,
		"the former place of an owner that was moved where the disk hung outweighs another's that came since"},
	{"D126", 6050046, []sim.Fault{sim.Lies, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Panics, sim.Disk,
		sim.Kills}, sim.PropMove, false,
		"a pod that was held back at the Synchronize is taken to have no mask"},
	{"D127", 6052236, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Kills, sim.Reconnects},
		sim.PropGrant, false,
		"an owner that waited and was answered where the disk hung is in the pool again after a kill on its way"},
	{"D128", 6051087, []sim.Fault{sim.Errors, sim.Hangs, sim.Panics, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"the world wanted an owner to keep CPUs that are back without the daemon's knowing"},
	{"D129", 6050133, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"a container that was let start unanswered hides what the runtime stores of the pod's next one"},
	{"D130", 6022964, []sim.Fault{sim.Unreadable, sim.Hangs, sim.Kills}, sim.PropSettle, false,
		"a resize that makes a capped container smaller is undone after a kill where its cgroup cannot be read"},
	{"D131", 1795460247447565516, []sim.Fault{sim.Panics, sim.Defects}, sim.PropGrant, false,
		"what was decided before a panic is not handed on where the panic's own mend hands on something else"},
	{"D132", 6052, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Defects, sim.Kills}, sim.PropGrant,
		false, "masks change before places are saved that were found in a Synchronize that a panic left out"},
	{"D133", 8000745, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Panics, sim.Disk, sim.Reconnects}, sim.PropGrant,
		false, "the world wanted a daemon to save that has no machine to save from"},
	{"D134", 8030230, []sim.Fault{sim.Unreadable, sim.Panics, sim.Disk, sim.Kills, sim.Reconnects}, sim.PropGrant,
		false, "pods that are not read yet are lost with a machine that is rebuilt without their Synchronize"},
	{"D150", 7001006, []sim.Fault{sim.Errors, sim.Blind, sim.Kills}, sim.PropMove, false,
		"a container beside an owner is given a mask while that of their pod cannot be seen"},
	{"D151", 7008763, []sim.Fault{sim.Errors, sim.Unreadable, sim.Kills, sim.Unplugs}, sim.PropBeside, false,
		"a container starts beside an owner while the mask of their pod is not known"},
	{"D152", 7002085, []sim.Fault{sim.Errors, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Unplugs}, sim.PropMove,
		false, "a container whose answer waited is taken for gone, and its pod's mask leaves all of its own"},
	{"D153", 7000723, []sim.Fault{sim.Unreadable, sim.Reconnects}, sim.PropStart, false,
		"a container that was made without the mask in its answer is taken to have it"},
	{"D154", 7005954, []sim.Fault{sim.Errors, sim.LateEffect, sim.Unsaid, sim.Unplugs}, sim.PropBeside, false,
		"the world did not see that CPUs go off under a container that is created and not started"},
	{"D155", 7002370, []sim.Fault{sim.Errors, sim.Kills}, sim.PropGrant, false,
		"the world wanted a new daemon to know what a container owned that ended before it, where nothing was saved"},
	{"D156", 7008442, []sim.Fault{sim.Errors, sim.LateEffect, sim.Kills}, sim.PropMove, false,
		"a pool moves by an old plan onto CPUs that a resize was to take and has left to their owner since"},
	{"D157", 7009194, []sim.Fault{sim.Errors, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Panics, sim.Kills},
		sim.PropGrant, false,
		"an owner that waited and was given CPUs where the disk hung is in the pool again where nothing can be seen"},
	{"D158", 7002368, []sim.Fault{sim.LateEffect, sim.Disk, sim.Kills}, sim.PropGrant, false,
		"the world wanted a new daemon to know a container's CPUs of a mask that is larger than its request"},
	{"D159", 8060346, []sim.Fault{sim.Defects, sim.Kills}, sim.PropStart, false,
		"after two panics containers that the writer never saw are taken to have the masks of answers never given"},
	{"D160", 9001943, []sim.Fault{sim.LateEffect, sim.Errors, sim.Blind, sim.Reconnects}, sim.PropSettle, false,
		"a pod with a container that owns CPUs goes from mask to mask for ever after a write without an answer"},
	{"D161", 9012234, []sim.Fault{sim.Lies, sim.Panics, sim.Unsaid, sim.Reconnects}, sim.PropMove, false,
		"the world wanted a write to be taken back that widens a slice around a pod announced meanwhile"},
	{"D162", 9012836, []sim.Fault{sim.Errors, sim.Hangs, sim.Kills}, sim.PropBeside, false,
		"a container starts beside an owner before what a Synchronize has found is in the tree"},
	{"D163", 9001830, []sim.Fault{sim.LateEffect, sim.Hangs, sim.Unreadable, sim.Defects, sim.Kills, sim.Unplugs},
		sim.PropGrant, false,
		"the world wanted a new daemon to know what a container owned that ended, where the file has the pool"},
	{"D164", 8030593, []sim.Fault{sim.Lies, sim.Hangs, sim.Unreadable, sim.Kills, sim.Unsaid, sim.Unplugs},
		sim.PropGrant, false, "an owner whose resize was refused after its limit was raised loses its CPUs by a kill"},
	{"D165", 9202842, []sim.Fault{sim.Hangs, sim.Blind, sim.Kills, sim.Reconnects, sim.Unsaid}, sim.PropGrant, false,
		"an owner that waited and was answered where the disk hung is in the pool again where the slice is not seen"},
	{"D166", 9202036, []sim.Fault{sim.Disk, sim.Defects, sim.Kills}, sim.PropSettle, false,
		"a resize of a container with a saved cap is undone where two Synchronizes before it failed"},
	{"D167", 9206194, []sim.Fault{sim.Errors, sim.Hangs, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"a container that waited and was given CPUs where the disk hung is in the pool again after a kill"},
	{"D180", 7009191, []sim.Fault{sim.Lies, sim.LateEffect, sim.Blind, sim.Kills, sim.Unplugs}, sim.PropMove, false,
		"an owner whose mask cannot be seen gets that of the file before the others have left"},
	{"D181", 9112135, []sim.Fault{sim.Errors, sim.Lies, sim.Disk, sim.Kills, sim.Unsaid}, sim.PropGrant, false,
		"a slice that best effort in it widens is taken for the pool, and an owner's CPUs for the pool's"},
	{"D182", 9120191, []sim.Fault{sim.LateEffect, sim.Disk, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"the same as D181, where best effort in the slice has no mask of its own"},
	{"D183", 9122605, []sim.Fault{sim.Errors, sim.Lies, sim.Blind, sim.Unreadable, sim.Panics, sim.Unplugs},
		sim.PropMove, false, "the world did not see that all CPUs of a container's mask are off, but not its pod's"},
	{"D184", 9126503, []sim.Fault{sim.Unreadable, sim.Disk, sim.Kills, sim.Reconnects}, sim.PropSettle, false,
		"a resize of a capped container that nobody saw is taken for a limit of ours after a kill"},
	{"D185", 9143176, []sim.Fault{sim.LateEffect, sim.Disk, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner that got another CPU for one that is off, where the disk hung, has that one again after a kill"},
	{"D186", 9208032, []sim.Fault{sim.Hangs, sim.Defects, sim.Kills, sim.Reconnects, sim.Unsaid}, sim.PropGrant, false,
		"an owner loses CPUs at a Synchronize because not all of its containers run"},
	{"D187", 9208476, []sim.Fault{sim.Unreadable, sim.Disk, sim.Kills}, sim.PropSettle, false,
		"a cap stays for ever where the file is lost and its cgroup cannot be read at the Synchronize"},
	{"D190", 9301759, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Panics, sim.Defects, sim.Kills,
		sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropBeside, false,
		"a pod is left nothing of the mask with which a container comes into it that the tree does not know yet"},
	{"D191", 9504284, []sim.Fault{sim.Errors, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Panics, sim.Defects,
		sim.Kills, sim.Reconnects, sim.Clock}, sim.PropBeside, false,
		"a shared pod whose mask could not be read is taken to have none, and is given what its slice has"},
	{"D192", 9517295, []sim.Fault{sim.LateEffect, sim.Hangs, sim.Panics, sim.Kills, sim.Reconnects, sim.Clock},
		sim.PropGrant, false,
		"an owner gets back what a resize took from it and another has, where the disk hung after it was saved"},
	{"D193", 9541176, []sim.Fault{sim.Errors, sim.Hangs, sim.Blind, sim.Panics, sim.Defects, sim.Kills,
		sim.Reconnects, sim.Clock, sim.Unplugs}, sim.PropGrant, false,
		"a pod that was given CPUs since the file is taken to ask for what one of its containers does"},
	{"D194", 9542387, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Kills, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"an owner that was moved off CPUs that are off, where the disk hung, is put back on them"},
	{"D195", 9543856, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Kills, sim.Reconnects, sim.Unsaid}, sim.PropGrant, false,
		"a slice with every CPU is taken to have the pool's, and an owner's mask for a part of it"},
	{"D196", 9549048, []sim.Fault{sim.LateEffect, sim.Hangs, sim.Panics, sim.Defects, sim.Kills, sim.Clock,
		sim.Unsaid}, sim.PropGrant, false,
		"an owner that is to grow is taken to have a part of the pool, where best effort had widened its slice"},
	{"D197", 9549113, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics,
		sim.Defects}, sim.PropGrant, false,
		"an owner that is decided again while a save without it is under way is answered before its place is saved"},
	{"D198", 9591615, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Panics, sim.Defects,
		sim.Disk, sim.Kills, sim.Reconnects, sim.Unsaid}, sim.PropGrant, false,
		"a pod in the pool whose mask was given up is taken to have the pool's, and an owner's mask for a part of it"},
	{"D188", 9312743, []sim.Fault{sim.LateEffect, sim.Blind, sim.Kills, sim.Unplugs}, sim.PropMove, false,
		"an update that is answered late has the runtime write CPUs that the writer has given to others"},
	{"D210", 9650200, []sim.Fault{sim.Errors, sim.LateEffect, sim.Disk}, sim.PropStart, false,
		"an update that is answered late names the container's mask, of which its pod has lost a part"},
	{"D211", 9516560, []sim.Fault{sim.Errors, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Disk, sim.Kills},
		sim.PropMove, false,
		"an owner that a Synchronize moved is taken to have a mask that nobody wrote"},
	{"D212", 9519987, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Defects, sim.Kills},
		sim.PropBeside, false,
		"an answer looks at the tree while the routine that takes decisions into it waits for a read"},
	{"D213", 9653493, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Disk, sim.Kills, sim.Unplugs},
		sim.PropSettle, false,
		"a write that may still take effect is waited for as long as the cgroup's mask is written again and again"},
	{"D214", 9653278, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Kills, sim.Unplugs},
		sim.PropBeside, false,
		"the world counted CPUs as an owner's that it has as one of the pool, before the others have left"},
	{"D215", 9703162, []sim.Fault{sim.LateEffect, sim.Lies, sim.Hangs, sim.Kills}, sim.PropGrant, false,
		"the world wanted a new daemon to know what a container owned in whose place another came without it"},
	{"D216", 9702889, []sim.Fault{sim.Hangs, sim.Blind, sim.Panics, sim.Defects, sim.Disk}, sim.PropSettle,
		false,
		"after a panic whose event is left out a cap that the runtime was told is taken for kubelet's limit"},
	{"D217", 9720877, []sim.Fault{sim.Panics, sim.Defects}, sim.PropGrant, false,
		"an owner that came again after panics is answered before its place is saved"},
	{"D218", 9734049, []sim.Fault{sim.LateEffect, sim.Blind, sim.Unreadable, sim.Disk, sim.Kills},
		sim.PropMove, false,
		"an update that is answered late has the runtime write CPUs of others where its mask is not known"},
	{"D219", 9730218, []sim.Fault{sim.Blind, sim.Kills, sim.Unsaid}, sim.PropStart, false,
		"an owner comes onto CPUs of a pod that is not read yet"},
	{"D220", 9760156, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Reconnects}, sim.PropMove, false,
		"the world wanted a write to be taken back that widens a slice around a pod that came without a daemon"},
	{"D221", 9802413, []sim.Fault{sim.Lies, sim.Kills}, sim.PropSettle, false,
		"a resize is undone where the end of a cap is written after it and the daemon is killed"},
	{"D222", 9802413, []sim.Fault{sim.Lies, sim.Kills, sim.Unreadable}, sim.PropSettle, false,
		"the same, where the container's cgroup cannot be read at the Synchronize"},
	{"D224", 9401197, []sim.Fault{sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics, sim.Disk,
		sim.Kills, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"an owner that waited and was answered where the disk hung is in the pool again, whose mask it still has"},
	{"D225", 10002285, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Unreadable, sim.Panics, sim.Defects,
		sim.Disk, sim.Kills, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"a container that waited and was given CPUs is in the pool again where its cgroup cannot be read"},
	{"D226", 9730815, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Disk, sim.Kills, sim.Reconnects, sim.Clock}, sim.PropGrant, false,
		"an owner that was read loses its CPUs while one that has ended cannot be read"},
	{"D227", 12011929, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Blind, sim.Defects, sim.Disk,
		sim.Kills, sim.Clock, sim.Unplugs}, sim.PropStart, false,
		"an update that is late is answered CPUs of the pool, in which the writer still has the owner"},
	{"D228", 16008533, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Disk, sim.Kills, sim.Unsaid}, sim.PropGrant, false,
		"an owner that is placed anew at a start is given CPUs that the mask of a later one has"},
	{"D229", 16006813, []sim.Fault{sim.Lies, sim.LateEffect, sim.Unreadable, sim.Panics, sim.Defects, sim.Disk,
		sim.Kills, sim.Reconnects, sim.Clock}, sim.PropGrant, false,
		"the pool's mask is taken for an owner's, and the last owner has to go since no pool is left"},
	{"D230", 16023570, []sim.Fault{sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable, sim.Defects,
		sim.Kills, sim.Reconnects, sim.Clock, sim.Unsaid}, sim.PropGrant, false,
		"an owner that waited and was given CPUs where the disk hung still has the pool's mask, and is in the pool"},
	{"D231", 18001196, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Kills, sim.Reconnects, sim.Unplugs}, sim.PropGrant, false,
		"a mask that a pod of the pool has too counts more than the runtime's store"},
	{"D232", 16028098, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Panics, sim.Reconnects,
		sim.Unplugs}, sim.PropSettle, false,
		"a cap is lost with the record of events before a reconnection, and its limit is taken for kubelet's"},
	{"D233", 20004128, []sim.Fault{sim.Unreadable, sim.Disk, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"the file's owner is given CPUs that it has left, and the owner that came onto them goes"},
	{"D234", 20071844, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable, sim.Kills,
		sim.Reconnects, sim.Unsaid}, sim.PropStart, false,
		"a late update is answered CPUs while pods that the runtime has listed are not taken over"},
	{"D235", 20105603, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Kills, sim.Reconnects, sim.Unplugs}, sim.PropStart, false,
		"a late update is answered CPUs that others fell back to when theirs went offline"},
	{"D236", 20020734, []sim.Fault{sim.Blind, sim.Panics, sim.Defects, sim.Kills, sim.Clock, sim.Unsaid},
		sim.PropMove, false,
		"masks that were read are lost with decisions that the writer panics at again and again"},
	{"D237", 20060347, []sim.Fault{sim.Lies, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics, sim.Disk, sim.Kills,
		sim.Unsaid, sim.Unplugs}, sim.PropMove, false,
		"an owner starts on CPUs that a limit hides in the mask of another pod"},
	{"D238", 20107065, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Blind, sim.Panics, sim.Defects,
		sim.Disk, sim.Kills, sim.Reconnects, sim.Unplugs}, sim.PropMove, false,
		"a pod whose CPUs are offline is held on an owner's by a mask that is written when they are back"},
	{"D239", 20083475, []sim.Fault{sim.Lies, sim.LateEffect, sim.Unreadable, sim.Panics, sim.Disk, sim.Kills,
		sim.Clock, sim.Unplugs}, sim.PropMove, false,
		"a late update is answered CPUs that its pod's cgroup does not have"},
	{"D240", 20034918, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Disk, sim.Kills, sim.Reconnects, sim.Unsaid, sim.Unplugs}, sim.PropMove, false,
		"the world counted a pod that a Synchronize announced while a write widened its slice"},
	{"D241", 20069436, []sim.Fault{sim.Errors, sim.LateEffect, sim.Blind, sim.Panics, sim.Defects, sim.Disk,
		sim.Kills, sim.Reconnects, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropMove, false,
		"the same of a pod that is announced after the write timed out, and before it took effect"},
	{"D242", 20100199, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Unreadable, sim.Defects, sim.Kills,
		sim.Reconnects, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"a container that was resized as the daemon was killed loses the CPUs that store and mask agree on"},
	{"D243", 20028943, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Blind, sim.Unreadable, sim.Defects,
		sim.Disk, sim.Kills, sim.Reconnects, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"a container has the CPUs of an old file, not those that it has received and that are stored"},
	{"D244", 20035310, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Disk, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner loses its CPUs to a container that has moved off them, which an old file does not show"},
	{"D245", 20010679, []sim.Fault{sim.Lies, sim.LateEffect, sim.Hangs, sim.Panics, sim.Defects, sim.Disk,
		sim.Reconnects, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"a reply has CPUs that a rebuilt machine had lost and that its save lacks"},
	{"D246", 20057342, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Disk, sim.Kills, sim.Clock, sim.Unplugs}, sim.PropGrant, false,
		"an owner that shrank has its old CPUs again, which leave no pool, although the file has the new ones"},
	{"D247", 20054085, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Unreadable, sim.Kills, sim.Clock,
		sim.Unsaid}, sim.PropGrant, false,
		"an owner's mask from before others came onto its CPUs is believed, and it is left without any"},
	{"D248", 20067195, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Panics, sim.Defects,
		sim.Kills, sim.Reconnects, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"an owner loses its CPUs to one that has left a part of its own, which an old file does not show"},
	{"D249", 20029495, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Unreadable, sim.Panics,
		sim.Defects, sim.Disk, sim.Kills, sim.Unplugs}, sim.PropGrant, false,
		"an owner that gets a CPU back that was offline has only its mask if not all of its containers run"},
	{"D250", 20091937, []sim.Fault{sim.Errors, sim.Lies, sim.Hangs, sim.Blind, sim.Defects, sim.Disk, sim.Kills,
		sim.Reconnects, sim.Clock}, sim.PropGrant, false,
		"the pool's mask is taken for an owner's of fewer CPUs, and an owner has to go since no pool is left"},
	{"D251", 20073432, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Disk, sim.Kills, sim.Reconnects, sim.Clock, sim.Unplugs}, sim.PropSettle, false,
		"a cap that was over at the start is left where its cgroup looked gone"},
	{"D252", 20064702, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Disk, sim.Kills, sim.Reconnects, sim.Clock}, sim.PropSettle, false,
		"a limit that a read of its pod tells is not corrected, since the container is read later"},
	{"D253", 20064702, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Disk, sim.Kills, sim.Reconnects, sim.Clock}, sim.PropSettle, false,
		"a Synchronize that panics takes limits that are not read yet for known"},
	{"D254", 20064702, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Defects, sim.Disk, sim.Kills, sim.Reconnects, sim.Clock}, sim.PropSettle, false,
		"a pod looked gone while a start read it, and the limit of its creation counts"},
	{"D255", 20037031, []sim.Fault{sim.Errors, sim.Lies, sim.Unreadable, sim.Defects, sim.Disk, sim.Kills,
		sim.Reconnects, sim.Clock, sim.Unplugs}, sim.PropSettle, false,
		"the world wanted the limit of a container that no record shows after the file was lost"},
	{"D256", 20011025, []sim.Fault{sim.Errors, sim.Lies, sim.LateEffect, sim.Hangs, sim.Blind, sim.Unreadable,
		sim.Panics, sim.Disk, sim.Kills, sim.Reconnects, sim.Clock, sim.Unsaid, sim.Unplugs}, sim.PropGrant, false,
		"as D250, and the owner that has to go is the only one whose CPUs the pool's slice has lost"},
	{"D257", 20094437, []sim.Fault{sim.Errors, sim.LateEffect, sim.Hangs, sim.Unreadable, sim.Panics, sim.Defects,
		sim.Disk, sim.Kills, sim.Reconnects}, sim.PropGrant, false, "the same, and the pool's mask is the smallest"},
	{"D258", 32000456, []sim.Fault{sim.Lies, sim.Hangs, sim.Panics, sim.Disk, sim.Kills, sim.Unsaid, sim.Unplugs},
		sim.PropGrant, false, "an owner that has grown loses CPUs of its mask and weight, which the slice has too"},
	{"D259", 33001691, []sim.Fault{sim.Blind, sim.Panics, sim.Disk, sim.Reconnects,
		sim.Clock}, sim.PropSettle, false,
		"a limit that kubelet has set meanwhile is corrected by what was read before, as it is the answered one"},
	{"D42", 0, []sim.Fault{sim.Reconnects}, sim.PropSettle, false,
		"a resize that the daemon did not see is undone by the end of the next cap"},
}

// play plays one run.
func play(t *testing.T, cfg sim.Config) *sim.Report {
	t.Helper()
	report := sim.Play(cfg, newSimulated)
	return report
}

func TestDefectsThatTheWorldFound(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "world", d.name+".trace"))
			if err != nil {
				t.Fatal(err)
			}
			trace := sim.ParseTrace(string(text))
			r := play(t, sim.Config{Seed: d.seed, Faults: d.faults, Gates: gatesOf(trace), Trace: trace})
			switch v := r.Violation; {
			case d.open && (v == nil || v.Property != d.breaks):
				t.Errorf("%s (%s) is not seen any more: if it is mended, it is no longer open\n%s", d.name, d.what, r)
			case !d.open && v != nil:
				t.Errorf("%s (%s): %s", d.name, d.what, r)
			}
		})
	}
}

// gatesOf is what waited for the world where a trace was made.
func gatesOf(trace []sim.Choice) sim.Gates {
	return sim.Gates{Reads: slices.ContainsFunc(trace, func(c sim.Choice) bool { return c.Do == string(sim.Read) })}
}

// known says whether a run may have failed by a defect that is still open.
func known(r *sim.Report) bool {
	for _, d := range defects {
		lacks := func(f sim.Fault) bool { return !slices.Contains(r.Config.Faults, f) }
		if d.open && d.breaks == r.Violation.Property && !slices.ContainsFunc(d.faults, lacks) {
			return true
		}
	}
	return false
}

func worldConfig(t *testing.T) sim.Config {
	t.Helper()
	faults, err := sim.ParseFaults(*worldFaults)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{Faults: faults, Gates: sim.Gates{Reads: true}, Steps: *worldSteps, Swarm: true}
	if *worldAll {
		cfg.Gates, cfg.Swarm = sim.Gates{}, false
	}
	return cfg
}

// Whatever the order and whatever goes wrong, the promises of the design are kept.
// The same seeds are played every time, and some that are new.
func TestTheWorldKeepsItsPromises(t *testing.T) {
	cfg := worldConfig(t)
	if *worldSeed != 0 || *worldTrace != "" {
		cfg.Seed = *worldSeed
		if *worldTrace != "" {
			text, err := os.ReadFile(*worldTrace)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Trace, cfg.Swarm = sim.ParseTrace(string(text)), false
			cfg.Gates = gatesOf(cfg.Trace)
		}
		r := play(t, cfg)
		for _, line := range r.Log {
			t.Log(line)
		}
		complain(t, r)
		return
	}
	var seeds []uint64
	for i := range *worldSeeds {
		seeds = append(seeds, *worldFrom+uint64(i))
	}
	first := uint64(time.Now().UnixNano())
	for i := range *worldNew {
		seeds = append(seeds, first+uint64(i))
	}
	if *worldNew > 0 {
		t.Logf("new seeds: %d to %d", first, first+uint64(*worldNew)-1)
	}
	begun, failed, done := time.Now(), map[sim.Property][]uint64{}, 0
	inOrder(seeds, func(seed uint64) *sim.Report {
		cfg := cfg
		cfg.Seed = seed
		return play(t, cfg)
	}, func(r *sim.Report) {
		if v := r.Violation; v != nil {
			failed[v.Property] = append(failed[v.Property], r.Config.Seed)
			fmt.Printf("seed %d: %v\n", r.Config.Seed, v)
			if len(failed[v.Property]) == 1 || !known(r) && !t.Failed() {
				complain(t, r)
			}
		}
		if done++; done%1000 == 0 {
			fmt.Printf("%d of %d seeds after %s\n", done, len(seeds), time.Since(begun).Round(time.Second))
		}
	})
	for _, p := range slices.Sorted(maps.Keys(failed)) {
		seeds := failed[p]
		t.Logf("%s: %d seeds, among them %v", p, len(seeds), seeds[:min(len(seeds), 20)])
	}
}

// inOrder computes one value for each seed, on all processors, and hands the values over in the order of
// the seeds, in the goroutine of the test. It runs ahead of that by a few seeds only.
func inOrder[T any](seeds []uint64, compute func(seed uint64) T, take func(T)) {
	// A run leaves much garbage and keeps little, and so small a heap is collected all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	type turn struct {
		seed   uint64
		result chan T
	}
	workers := runtime.GOMAXPROCS(0)
	todo, ordered := make(chan turn), make(chan turn, 16*workers)
	go func() {
		defer close(ordered)
		defer close(todo)
		for _, seed := range seeds {
			next := turn{seed, make(chan T, 1)}
			ordered <- next
			todo <- next
		}
	}()
	for range workers {
		go func() {
			for next := range todo {
				next.result <- compute(next.seed)
			}
		}()
	}
	for next := range ordered {
		take(<-next.result)
	}
}

// complain reports a failed run with as few choices as show it.
func complain(t *testing.T, r *sim.Report) {
	t.Helper()
	if r.Violation == nil {
		return
	}
	if known(r) {
		t.Logf("seed %d, a defect that is known: %s", r.Config.Seed, r.Violation)
		return
	}
	if *worldShort {
		r = sim.Shorten(r, func(cfg sim.Config) *sim.Report { return play(t, cfg) })
	}
	t.Error(r)
}

// A seed is the same run whenever it is played, and however many processors there are.
func TestASeedIsOneRun(t *testing.T) {
	cfg := worldConfig(t)
	var seeds []uint64
	for i := range *worldSame {
		seeds = append(seeds, *worldFrom+uint64(i))
	}
	digests, replays := map[uint64]string{}, 0
	for _, processors := range []int{1, 2} {
		before := runtime.GOMAXPROCS(processors)
		inOrder(seeds, func(seed uint64) []*sim.Report {
			cfg := cfg
			cfg.Seed = seed
			var runs []*sim.Report
			for range 1 + *worldAgain {
				runs = append(runs, play(t, cfg))
			}
			return runs
		}, func(runs []*sim.Report) {
			first := runs[0]
			for _, again := range runs[1:] {
				if replays++; again.Digest != first.Digest {
					t.Errorf("seed %d on %d processors: %s", first.Config.Seed, processors, parting(first, again))
				}
			}
			if digest, ok := digests[first.Config.Seed]; ok && digest != first.Digest {
				t.Errorf("seed %d was %s on one processor and is %s on two", first.Config.Seed, digest, first.Digest)
			}
			digests[first.Config.Seed] = first.Digest
		})
		runtime.GOMAXPROCS(before)
	}
	t.Logf("%d seeds are the same run in %d replays", len(digests), replays)
}

// parting is where two runs of a seed differ.
func parting(first, again *sim.Report) string {
	at := 0
	for at < min(len(first.Log), len(again.Log)) && first.Log[at] == again.Log[at] {
		at++
	}
	next := func(log []string) string {
		if at == len(log) {
			return "its end"
		}
		return log[at]
	}
	return fmt.Sprintf("after %q came %q and comes %q", first.Log[max(at-5, 0):at], next(first.Log), next(again.Log))
}
