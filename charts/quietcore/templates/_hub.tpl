{{/* The values of the hub, complete: those of an older chart, which --reuse-values leaves, lack them. */}}
{{- define "quietcore.hub" -}}
{{- $defaults := dict "enabled" false "every" "15s" "window" "168h" "parallel" 16 "priorityClassName" ""
  "resources" (dict "requests" (dict "cpu" "50m" "memory" "128Mi") "limits" (dict "memory" "512Mi")) "goMemLimit" "384MiB"
  "tolerations" list "nodeSelector" dict "affinity" dict "podAnnotations" dict "podLabels" dict -}}
{{- mustMergeOverwrite $defaults (deepCopy (default dict .Values.hub)) | toYaml -}}
{{- end -}}

{{- define "quietcore.hub.fullname" -}}
{{- printf "%s-hub" (include "quietcore.fullname" . | trunc 59 | trimSuffix "-") -}}
{{- end -}}

{{/* Another name than the daemon's, as the scheduler's is. */}}
{{- define "quietcore.hub.selector" -}}
app.kubernetes.io/name: {{ printf "%s-hub" (include "quietcore.name" . | trunc 59 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quietcore.hub.labels" -}}
{{- mustMergeOverwrite (include "quietcore.labels" . | fromYaml) (include "quietcore.hub.selector" . | fromYaml) (dict "app.kubernetes.io/component" "hub") | toYaml -}}
{{- end -}}
