{{/* The values of the evictor, complete: those of an older chart, which --reuse-values leaves, lack them. */}}
{{- define "quietcore.evictor" -}}
{{- $defaults := dict "replicas" 2 "every" "10s" "burst" 2 "priorityClassName" "system-cluster-critical"
  "resources" (dict "requests" (dict "cpu" "20m" "memory" "96Mi") "limits" (dict "memory" "512Mi")) "goMemLimit" "384MiB"
  "tolerations" list "nodeSelector" dict "affinity" dict "podAnnotations" dict "podLabels" dict -}}
{{- mustMergeOverwrite $defaults (deepCopy (default dict .Values.evictor)) | toYaml -}}
{{- end -}}

{{- define "quietcore.evictor.fullname" -}}
{{- printf "%s-evictor" (include "quietcore.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* Another name than the daemon's, as the scheduler's is. */}}
{{- define "quietcore.evictor.selector" -}}
app.kubernetes.io/name: {{ printf "%s-evictor" (include "quietcore.name" . | trunc 55 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quietcore.evictor.labels" -}}
{{- mustMergeOverwrite (include "quietcore.labels" . | fromYaml) (include "quietcore.evictor.selector" . | fromYaml) (dict "app.kubernetes.io/component" "evictor") | toYaml -}}
{{- end -}}

{{- define "quietcore.evictor.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "quietcore.evictor.fullname" . }}
{{- end -}}

{{/* CEL: a pod's status before and after, and its marks in it. */}}
{{- define "quietcore.markVariables" -}}
- name: type
  expression: "'quietcore.dev/EvictionRequested'"
- name: now
  expression: "dyn(object).?status.orValue({})"
- name: was
  expression: "dyn(oldObject).?status.orValue({})"
- name: marks
  expression: variables.now.?conditions.orValue([]).filter(c, c.type == variables.type)
- name: marked
  expression: variables.was.?conditions.orValue([]).filter(c, c.type == variables.type)
{{- end -}}

{{/* CEL: nothing of a pod changes but one mark. The API server itself keeps a change of the status from changing the spec. */}}
{{- define "quietcore.markValidations" -}}
- expression: >-
    variables.now.all(f, f == 'conditions' || f in variables.was && variables.now[f] == variables.was[f])
    && variables.was.all(f, f == 'conditions' || f in variables.now) && dyn(object).spec == dyn(oldObject).spec
  reason: Forbidden
  message: of a pod's status {{ . }} writes a condition only
- expression: >-
    variables.now.?conditions.orValue([]).filter(c, c.type != variables.type)
    == variables.was.?conditions.orValue([]).filter(c, c.type != variables.type)
    && size(variables.marks) <= 1 && variables.marks.all(c, size(c.?message.orValue('')) <= 1024 && size(c.?reason.orValue('')) <= 64)
  reason: Forbidden
  message: of a pod's conditions {{ . }} writes quietcore.dev/EvictionRequested only
- expression: >-
    ['labels', 'annotations', 'finalizers', 'ownerReferences'].all(f, dyn(object).metadata[?f] == dyn(oldObject).metadata[?f])
  reason: Forbidden
  message: of a pod's metadata {{ . }} writes nothing
{{- end -}}
