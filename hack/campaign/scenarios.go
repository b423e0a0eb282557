package main

// scenario is something that happens to a node, and what shows that the daemon takes it.
type scenario struct {
	name, want string
	// tests are "directory Test", a subtest after a slash.
	tests []string
	// guests are proofs in virtual machines, by the name that e2e/proof and e2e/kubernetes print.
	guests []string
	// lacks is what nothing shows yet; empty: all of it is shown.
	lacks string
}

// scenarios are all, in the order of docs/evidence/campaign.md.
func scenarios() []scenario {
	return append(append(append(runtimes(), machines()...), clusters()...), fleets()...)
}

// runtimes are scenarios of runtime, daemon and pods.
func runtimes() []scenario {
	return []scenario{
		{"the runtime restarts", "nothing moves; the daemon reconnects and takes over", []string{
			"plugin TestTheRuntimeComesBackAndNothingMoves", "plugin TestARuntimeThatDiesWithItsContainers"},
			[]string{"crash"}, ""},
		{"kill -9 between decision and reply", "a successor finds what a daemon that never died has", []string{
			"plugin TestKilledAtEveryPointOfEveryLife", "plugin TestWhatADeadDaemonGuards"}, []string{"crash"}, ""},
		{"kill -9 between state file and cgroup", "what is in force is on disk first, and is undone", []string{
			"plugin TestKilledAtEveryPointOfEveryLife", "plugin TestACapIsNotAppliedBeforeItIsOnDisk"}, nil, ""},
		{"a handler is slower than the runtime waits", "answered at half the time; a late request is not taken",
			[]string{"plugin TestAPluginThatWasTooSlowComesBackAndTakesOver",
				"plugin/node TestARequestThatComesTooLateIsNotTaken"}, nil, ""},
		{"Synchronize with 1,000 containers", "answered at the first attempt", []string{
			"plugin TestAThousandContainersAreTakenOverInTime", "plugin/node TestTakingOverAThousandPods"}, nil, ""},
		{"a Create or Synchronize with huge annotations", "only known keys are read; memory is bounded", []string{
			"plugin TestHostileAnnotationsAreRefusedFastAndKeptNowhere",
			"internal/kube TestAnnotationsOfTenantsCostLittle"}, nil, ""},
		{"the API server is absent at the start, or for long", "pinning works; the newest write wins later", []string{
			"internal/kube TestAbsentAtStart", "internal/kube TestGoneForTenMinutes",
			"internal/nrt TestServerGoneForTenMinutes"}, []string{"absent"}, ""},
		{"an annotation is malformed", "the pod is refused with the sentence, or shared, as configured", []string{
			"internal/script TestScenariosPlay/annotations-refused.yaml",
			"internal/script TestScenariosPlay/annotations-ignored.yaml"}, []string{"refused"}, ""},
		{"an annotation of a megabyte", "cut; never in a log or an Event", []string{
			"plugin TestHugeFieldsAreCut", "plugin TestHostileAnnotationsAreRefusedFastAndKeptNowhere"}, nil, ""},
		{"a CPU list is a bomb, negative, reversed, or of other digits", "refused within its size", []string{
			"cpuset TestParseRefuses", "plugin TestALongCPUListIsNotCut"}, nil, ""},
		{"a CPU list is valid, and not this node's", "refused by rule; the reason is told", []string{
			"policy TestStatusIsCheckedAgainstWhatIsDemanded",
			"internal/script TestScenariosPlay/status-trusted-and-wrong.yaml"}, nil, ""},
		{"a tenant claims a class without the right", "it is not given; Event and metric", []string{
			"policy TestPowers", "internal/script TestScenariosPlay/authority.yaml"}, []string{"tenant"}, ""},
		{"a tenant forges resource-status", "not believed, without the right", []string{
			"internal/script TestScenariosPlay/status-forged.yaml", "policy TestStatusIsCheckedAgainstWhatIsDemanded"},
			[]string{"tenant"}, ""},
		{"two pods have the same CPUs", "the first keeps them; the second moves or is refused", []string{
			"policy TestPinsThatCollideTogether", "plugin/node TestClaimsThatOverlap"}, nil, ""},
		{"a cgroup vanishes between list and write", "success by absence", []string{
			"internal/cgroup TestVanishedBetweenListAndUse", "internal/cgroup TestRandomLivesWithVanishingCgroups",
			"plugin TestACgroupThatVanishesInTheMiddleOfAChange"}, nil, ""},
		{"an event comes twice", "the same answer", []string{
			"plugin TestEventsThatComeTwiceOrTooSoonChangeNothing"}, nil, ""},
		{"events are out of order, or missing", "tolerated; who is gone is found by looking", []string{
			"plugin TestARandomLifeThroughTheAdaptation", "plugin TestVanishedPodsAreCollected",
			"plugin TestAPodWhoseEndIsNotToldIsFoundSoonAfterItsContainers"}, []string{"disorder"}, ""},
		{"a container fails or exits after the reply", "nothing is leaked; its CPUs are its pod's", []string{
			"plugin/node TestAContainerThatIsCreatedWithoutItsReply",
			"plugin TestACreateThatALaterPluginRefusesLeavesNothing",
			"plugin TestAKilledContainerComesBackToItsCPUs"}, nil, ""},
		{"two daemons on a node", "the second says who is there, and waits", []string{
			"internal/state TestOneInstance", "cmd/quietcore TestASecondDaemonSaysWhoIsThere",
			"plugin TestTwoPluginsOfOneName"}, nil, ""},
		{"ten times the churn of pods", "bounded; no goroutine is left", []string{
			"plugin/node TestABurstIsOneSave", "plugin TestNothingIsLeftRunning",
			"plugin TestAPodThatIsRefusedAThousandTimesCostsNothing"}, []string{"crowd"}, ""},
		{"containers that the runtime never announced", "found by a scan; reported or masked", []string{
			"plugin TestAPodThatWasNeverAnnouncedIsFound", "plugin TestAMaskedPodLeavesTheCPUsOfOwners",
			"plugin TestMaskingIsConfiguredWhileItRuns"}, nil, ""},
	}
}

// machines are scenarios of hardware, kernel and disk.
func machines() []scenario {
	return []scenario{
		{"a CPU goes offline, SMT is switched off", "pools follow; an owner keeps the rest, and is told", []string{
			"policy TestOwnersFollowTheirCPUs", "plugin TestCPUsThatGoOffAreFollowedFromOneFile",
			"internal/script TestScenariosPlay/offline-exclusive.yaml"}, []string{"hotplug"}, ""},
		{"a CPU comes back online", "it is in the shared pool without a restart", []string{
			"internal/cgroup TestRandomLivesWithWritesThatLandWhenCPUsAreBack", "sysfs TestWatch"},
			[]string{"hotplug"}, ""},
		{"a CPU is added that was never there", "taken for the machine's", []string{
			"topology TestRememberingAMachineThatChanged", "sysfs TestPlacesAreRememberedThroughSys"},
			[]string{"hotadd"}, ""},
		{"the topology files are nonsense", "a flat machine, or an error with the file's name; no panic", []string{
			"sysfs TestFixtures", "sysfs TestNoCPUIsAnError", "topology TestNewRefuses"}, nil, ""},
		{"cgroup v1", "pinning through the runtime works; the rest says why not", []string{
			"internal/cgroup TestRandomLivesV1", "internal/cgroup TestLimitOnV1"}, nil, ""},
		{"a cgroup above allows fewer CPUs", "explained, not fought", []string{
			"internal/cgroup TestRandomLivesUnderALimit", "internal/cgroup TestLimitFromOutside",
			"plugin TestALimitFromOutsideIsSaidAndNotFought"}, nil, ""},
		{"no BTF, no right to load a program", "no CPI, with the reason; pinning works", []string{
			"cpi/counter TestUnsupported", "cpi/counter TestWhyAbsent",
			"cmd/quietcore TestWhatIsNotCountedIsSaidEverywhereAndStopsNothing"}, []string{"doctor"}, ""},
		{"no PMU, a PMU that others use, counts of zero", "the run queue judges; never a wrong number", []string{
			"cpi/counter TestWithoutPMU", "cpi/counter TestAGroupThatAnotherUserKeepsOutYields",
			"cpi/loop TestWithoutAPMUTheQueueJudges", "cpi/sample TestNeverAWrongNumber"}, nil, ""},
		{"the BPF tables are full", "counted and said; bounded", []string{
			"cpi/counter TestTableOfCausesIsFull", "cpi/sampler TestWhatDoesNotFitIsSaidAndNotCounted"}, nil, ""},
		{"the inode of a cgroup is used again", "another container, with counts of its own", []string{
			"cpi/counter TestCgroupComesBack"}, nil, ""},
		{"no file descriptor is left", "the event is lost with its reason, and tried again", []string{
			"cpi/counter TestWhyAbsent", "cpi/counter TestAnEventThatIsBusyAtFirst"}, []string{"starved"}, ""},
		{"the state file is damaged, or another node's", "put aside; what runs is read from the node", []string{
			"internal/state TestBadFilesArePutAside", "internal/state TestEveryTruncationIsNoticed",
			"internal/state TestAnyFlippedBitIsNoticedOrMeansNothing", "plugin TestWhateverBecameOfTheStateFile"},
			nil, ""},
		{"the state file is of another version", "read; unknown owners stay reserved", []string{
			"internal/state TestGolden", "internal/state TestFieldsOfALaterMinorAreLeftOut",
			"plugin TestCPUsOfANewerDaemonsOwnerAreKept"}, nil, ""},
		{"the disk is full, or read-only", "pinning goes on from memory; said; the old file stays", []string{
			"internal/state TestAFullDiskKeepsTheOldFileAndTheLock", "internal/state TestAReadOnlyFolder",
			"plugin TestPinningGoesOnWhileNothingCanBeSaved", "internal/incidents TestAFullDisk"}, nil, ""},
		{"the state folder is deleted", "made anew", []string{
			"internal/state TestAFolderThatIsDeletedIsMadeAnew",
			"plugin TestWhateverBecameOfTheStateFile/the_folder_deleted"}, nil, ""},
		{"the clock is set by a day, both ways", "deadlines are monotonic; windows are dropped", []string{
			"internal/state TestDeadlinesAndAClockThatJumps", "plugin TestTheClockJumpsWhileTheDaemonIsDead",
			"plugin TestACapsDeadlineIsMonotonic", "cpi/detect TestClockThatLeaps",
			"cpi/detect TestClockThatGoesBack", "internal/page TestAClockThatIsSetBackIsSurvived"}, nil, ""},
		{"suspend and resume", "time runs by the machine's uptime; the window is dropped", []string{
			"internal/state TestDeadlinesAndAClockThatJumps", "cpi/sample TestNeverAWrongNumber",
			"plugin TestADeadlinePassesWhileTheMachineSleeps", "reclaim TestRestartAndClockJumps"},
			[]string{"sleep"}, ""},
		{"the path of a cgroup leads elsewhere", "refused", []string{
			"plugin TestCgroupPathsOfContainers", "internal/cgroup TestPaths",
			"internal/usage TestNoPathLeavesTheHierarchy", "internal/cdi TestUIDsAreNoPaths"}, nil, ""},
	}
}

// clusters are scenarios of kubelet, systemd and the API server.
func clusters() []scenario {
	return []scenario{
		{"kubelet's static policy is on", "its pins are honoured; no ping-pong", []string{
			"internal/kubelet TestInventory", "policy TestWhereAPinnedPodRuns",
			"internal/script TestScenariosPlay/static-kubelet-reconciles.yaml"}, []string{"static"}, ""},
		{"kubelet's checkpoint is corrupt, or of another version", "not believed; asked for again", []string{
			"internal/kubelet TestParseRefuses", "plugin TestKubeletsStateIsFollowed",
			"plugin TestKubeletsStateIsBounded"}, nil, ""},
		{"systemctl daemon-reload, set-property", "repaired within an audit, and counted by source", []string{
			"plugin TestDriftUnderSystemdIsCountedBySource", "plugin TestDriftIsRepairedAndCounted"},
			[]string{"drift"}, ""},
		{"systemctl daemon-reexec", "as a daemon-reload; the connection comes back", []string{
			"plugin TestABusThatHangsStartsNoOwner"}, []string{"drift"}, ""},
		{"another plugin sets cpusets", "what it refuses leaves nothing; what it moves is repaired; it is told, and " +
			"named where the runtime says who it is", []string{
			"plugin TestACreateThatALaterPluginRefusesLeavesNothing",
			"plugin TestAContainerThatStartsElsewhereIsRepairedAtOnce",
			"plugin TestAPluginBeforeOursThatSetsCPUsIsTold", "plugin TestAPluginAfterOursThatSetsCPUsIsTold",
			"plugin TestAPluginThatSetsCPUsAloneIsTold", "plugin TestAContainerThatOthersMoveIsTold"}, nil, ""},
		{"a configuration is wrong at the start or a reload", "refused with line and key; the old one stays",
			[]string{"internal/config TestRefusesAllMistakesAtOnce", "internal/config TestWatchKeepsTheLastGoodFile",
				"internal/config TestWatchSeesAConfigMapSwap",
				"cmd/quietcore TestABadReloadKeepsTheOldConfiguration"}, nil, ""},
		{"an unprivileged process reaches the socket", "refused", []string{
			"internal/control TestSocketsAreForRootAlone", "internal/page TestAUnixSocketIsForRootAlone"}, nil, ""},
		{"a tenant scrapes the metrics", "refused without a right; no name of another tenant", []string{
			"cmd/quietcore TestMetricsTakeAToken", "internal/access TestWhoMayRead",
			"internal/metrics TestNoSeriesOfContainersUnlessAllowed"}, nil, ""},
		{"names with newlines, escapes and markup", "escaped on terminal, page, plot and in logs", []string{
			"internal/control/show TestHostileNamesReachNoTerminal", "internal/printable TestNothingElseGetsThrough",
			"internal/render TestHostileNames", "internal/incidents/plot TestHostileIncidents",
			"internal/page TestHostileNamesAreCleanText"}, nil, ""},
		{"the wrong pod is throttled, or all are outliers", "a bound on false verdicts and on harm", []string{
			"cpi/experiment TestBound", "cpi/experiment TestHarmIsCountedInSeconds",
			"cpi/detect TestWhoMayBeCapped"}, []string{"interference"}, ""},
		{"a throttled pod outlives the daemon", "undone at the deadline, or by the next daemon", []string{
			"plugin TestACapThatEndedWhileTheDaemonWasDeadIsUndone",
			"plugin TestACapIsUndoneAlthoughTheStateFileIsGone",
			"plugin TestRestoreGivesBackWhatTheKernelWouldHaveGiven"}, []string{"uninstall"}, ""},
		{"the NodeResourceTopology is edited, deleted, foreign, or unknown", "taken back once; never fought", []string{
			"internal/nrt TestEditIsTakenBackOnce", "internal/nrt TestDeletionBehindOurBack",
			"internal/nrt TestForeignObjectIsLeftAlone", "internal/nrt TestAbsentCRD"}, nil, ""},
		{"the daemon would starve by its own rules", "its class is SYSTEM: all CPUs that no pod owns", []string{
			"internal/script TestScenariosPlay/system-class.yaml"}, nil, ""},
		{"the shared pool would be empty", "refused before anything changes", []string{
			"internal/script TestScenariosPlay/floor.yaml", "policy TestTheSharedPoolKeepsWhatItsPodsRequest",
			"policy TestClaimShareBesideOwners"}, nil, ""},
	}
}

// fleets are scenarios that many nodes meet.
func fleets() []scenario {
	return []scenario{
		{"storms of 429 and 500", "what is known stays known", []string{
			"internal/kube TestStorms/429_on_list_and_watch", "internal/kube TestStorms/500_on_list_and_watch"},
			nil, ""},
		{"bookmarks are lost, 410 in a loop", "listed again; nothing is forgotten", []string{
			"internal/kube TestStorms/410_on_every_watch",
			"internal/kube TestStorms/watches_that_end_before_their_first_bookmark",
			"internal/kube TestGoneOnWatch"}, nil, ""},
		{"5,000 containers at Synchronize, and a slow disk", "answered in time; saved as one", []string{
			"plugin/node TestTakingOverFiveThousandPodsBesideASlowDisk"}, nil, ""},
		{"the daemon has 50m CPU, then is killed for its memory", "as slow, and as kill -9", []string{
			"plugin TestKilledAtEveryPointOfEveryLife",
			"plugin TestAPluginThatWasTooSlowComesBackAndTakesOver"}, []string{"starved"}, ""},
		{"a second cluster's daemon", "the second waits; what it wrote is left alone", []string{
			"cmd/quietcore TestASecondDaemonSaysWhoIsThere", "internal/nrt TestForeignObjectIsLeftAlone",
			"internal/lend TestRivalIsNamed"}, nil, ""},
		{"another cluster agent publishes what is lent", "answered at a bounded rate, and named", []string{
			"internal/lend TestRivalIsAnsweredAtABoundedRate", "internal/lend TestRivalIsNamed"}, nil, ""},
		{"containerd 1.7 becomes 2.x under running pods", "nothing moves", []string{
			"plugin TestTheRuntimeComesBackAndNothingMoves",
			"plugin TestEventsThatTheRuntimeDoesNotKnowAreNotAskedFor"},
			[]string{"new-runtime"}, ""},
	}
}
