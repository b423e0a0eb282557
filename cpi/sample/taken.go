package sample

// Taken is the CPU time in seconds that nobody had: the hypervisor took it, or interrupts and
// softirqs did, whoever they interrupted.
type Taken struct{ Steal, Interrupts float64 }
