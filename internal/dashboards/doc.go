// Package dashboards makes the Grafana dashboards of the chart: lists of panels are
// laid out and written as the JSON that Grafana loads, charts/quietcore/dashboards.
//
// Its tests hold the dashboards, the alert rules and the runbook together: they run
// every query and every rule against a real Prometheus that scrapes a daemon under
// load, and find each metric in the catalogue and each link in docs/runbook.md.
package dashboards
