{{/* metadata of an object of monitoring, which may have a namespace, labels and annotations of its own. */}}
{{- define "quietcore.monitorMetadata" -}}
metadata:
  name: {{ .name | default (include "quietcore.fullname" .root) }}
  namespace: {{ .values.namespace | default .root.Release.Namespace }}
  labels: {{- mustMergeOverwrite (include "quietcore.labels" .root | fromYaml) (deepCopy (default dict .values.labels)) | toYaml | nindent 4 }}
  {{- with .values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A monitor's spec without its endpoints. */}}
{{- define "quietcore.monitorSpec" -}}
namespaceSelector:
  matchNames: [{{ .root.Release.Namespace }}]
{{- if .values.nativeHistograms }}
scrapeNativeHistograms: true
scrapeClassicHistograms: true
{{- end }}
{{- end -}}

{{/* One endpoint, the same for both kinds. */}}
{{- define "quietcore.endpoint" -}}
port: metrics
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .scheme }}
scheme: {{ . }}
{{- end }}
{{- with .tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .authorization }}
authorization: {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  {{- with .relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The service account as which Prometheus reads the daemon's metrics, its role and its Secret. */}}
{{- define "quietcore.readerName" -}}
{{- printf "%s-metrics-reader" (include "quietcore.fullname" . | trunc 48 | trimSuffix "-") -}}
{{- end -}}

{{/* The namespaces of monitors that read with that account. */}}
{{- define "quietcore.readers" -}}
{{- $list := list -}}
{{- $facts := include "quietcore.facts" . | fromYaml -}}
{{- if and $facts.auth (ne (toString (dig "reader" "create" true .Values.metrics)) "false") -}}
{{- range $kind, $values := dict "PodMonitor" .Values.metrics.podMonitor "ServiceMonitor" .Values.metrics.serviceMonitor -}}
{{- if and (default dict $values).enabled (not (default dict $values).authorization) ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind)) -}}
{{- $list = append $list (default $.Release.Namespace $values.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $list | uniq | toYaml -}}
{{- end -}}

{{/* A monitor's values with the way to a daemon that has TLS and wants a token. */}}
{{- define "quietcore.secured" -}}
{{- $values := deepCopy .values -}}
{{- if (include "quietcore.facts" .root | fromYaml).auth -}}
{{- $_ := set $values "scheme" (default "https" $values.scheme) -}}
{{- if not $values.tlsConfig -}}
{{- $_ := set $values "tlsConfig" (dict "insecureSkipVerify" true) -}}
{{- end -}}
{{- if and (not $values.authorization) (include "quietcore.readers" .root | fromYamlArray) -}}
{{- $_ := set $values "authorization" (dict "credentials" (dict "name" (include "quietcore.readerName" .root) "key" "token")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* Where the documents are that alerts and dashboards name, in place of what the files have. */}}
{{- define "quietcore.runbookPrefix" -}}
{{- default "https://github.com/quietcore/quietcore/blob/main/" .Values.runbookPrefix -}}
{{- end -}}

{{/* The groups of rules/*.yaml as values want them, as {groups: […]}. */}}
{{- define "quietcore.ruleGroups" -}}
{{- $values := .Values.metrics.rules -}}
{{- $prefix := include "quietcore.runbookPrefix" . -}}
{{- $names := list -}}
{{- $groups := list -}}
{{- range $file, $text := .Files.Glob "rules/*.yaml" -}}
{{- $rules := fromYaml (toString $text) -}}
{{- with $rules.Error -}}{{- fail (printf "%s: %s" $file .) -}}{{- end -}}
{{- range $group := default list $rules.groups -}}
{{- $keep := list -}}
{{- if or (not (hasPrefix "quietcore-cpi-specs" $group.name)) (ne (toString $values.specs) "false") -}}
{{- $here := or (ne $group.name "quietcore-scheduler") ($.Values.scheduler).enabled -}}
{{- range $rule := $group.rules -}}
{{- if not $rule.alert -}}
{{- $keep = append $keep $rule -}}
{{- else -}}
{{- $names = append $names $rule.alert -}}
{{- if and $here (ne (toString $values.alerts) "false") (not (has $rule.alert (default list $values.disabledAlerts))) -}}
{{- $_ := set $rule "labels" (mustMergeOverwrite (default dict $rule.labels) (deepCopy (default dict $values.alertLabels))) -}}
{{- if dig "annotations" "runbook" "" $rule -}}
{{- $_ := set $rule.annotations "runbook_url" (print $prefix $rule.annotations.runbook) -}}
{{- end -}}
{{- $keep = append $keep $rule -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $keep -}}
{{- $groups = append $groups (set $group "rules" $keep) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range default list $values.disabledAlerts -}}
{{- if not (has . $names) -}}
{{- fail (printf "metrics.rules.disabledAlerts: there is no alert %q; there are %s" . (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}
