{{/* The values of the scheduler, complete: those of an older chart, which --reuse-values leaves, lack them. */}}
{{- define "quietcore.scheduler" -}}
{{- $defaults := dict "enabled" false "name" "quietcore-scheduler" "replicas" 2
  "image" (dict "repository" "quietcore-scheduler" "tag" "" "digest" "")
  "args" (dict "absentNodes" "Refuse" "annotate" "Binding" "refusedPods" "Leave")
  "clientConnection" (dict "qps" 50 "burst" 100)
  "config" dict "extraRules" list "verbosity" 2 "priorityClassName" "system-cluster-critical"
  "resources" (dict "requests" (dict "cpu" "100m" "memory" "256Mi") "limits" (dict "memory" "1Gi")) "goMemLimit" "768MiB"
  "tolerations" list "nodeSelector" dict "affinity" dict "podAnnotations" dict "podLabels" dict -}}
{{- mustMergeOverwrite $defaults (deepCopy (default dict .Values.scheduler)) | toYaml -}}
{{- end -}}

{{- define "quietcore.scheduler.fullname" -}}
{{- printf "%s-scheduler" (include "quietcore.fullname" . | trunc 53 | trimSuffix "-") -}}
{{- end -}}

{{/* Another name than the daemon's: selectors of DaemonSet, monitors and policies have two labels each, for ever. */}}
{{- define "quietcore.scheduler.selector" -}}
app.kubernetes.io/name: {{ printf "%s-scheduler" (include "quietcore.name" . | trunc 53 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quietcore.scheduler.labels" -}}
{{- mustMergeOverwrite (include "quietcore.labels" . | fromYaml) (include "quietcore.scheduler.selector" . | fromYaml) (dict "app.kubernetes.io/component" "scheduler") | toYaml -}}
{{- end -}}

{{- define "quietcore.scheduler.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "quietcore.scheduler.fullname" . }}
{{- end -}}

{{/* kube-scheduler's configuration file. Of a profile that values name everything is theirs but the plugin. */}}
{{- define "quietcore.scheduler.config" -}}
{{- $s := include "quietcore.scheduler" . | fromYaml -}}
{{- range list "profiles" "leaderElection" "apiVersion" "kind" -}}
{{- if hasKey $s.config . -}}
{{- fail (printf "scheduler.config.%s is set; the chart makes it: scheduler.name, scheduler.args" .) -}}
{{- end -}}
{{- end -}}
{{- $plugin := list (dict "name" "Quietcore" "weight" 100) -}}
{{- $profile := dict "schedulerName" $s.name
  "plugins" (dict "multiPoint" (dict "enabled" $plugin) "bind" (dict "enabled" (list (dict "name" "Quietcore"))))
  "pluginConfig" (list (dict "name" "Quietcore" "args" $s.args)) -}}
{{- $base := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration"
  "leaderElection" (dict "leaderElect" true "resourceLock" "leases" "resourceNamespace" .Release.Namespace "resourceName" (include "quietcore.scheduler.fullname" .))
  "clientConnection" $s.clientConnection "enableProfiling" false "enableContentionProfiling" false
  "profiles" (list $profile) -}}
{{- mustMergeOverwrite $base $s.config | toYaml -}}
{{- end -}}
