{{/* The values of the hub, complete: those of an older chart, which --reuse-values leaves, lack them. */}}
{{- define "quietcore.hub" -}}
{{- $defaults := dict "enabled" false "every" "15s" "window" "168h" "parallel" 16 "priorityClassName" ""
  "resources" (dict "requests" (dict "cpu" "50m" "memory" "128Mi") "limits" (dict "memory" "512Mi")) "goMemLimit" "384MiB"
  "prometheus" (dict "url" "" "matchers" "" "token" (dict "secretName" "" "key" "token") "ca" (dict "configMapName" "" "secretName" "" "key" "ca.crt"))
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

{{/* The Prometheus that the hub asks: its own, else that of specs with what specs mounts; an empty url: none. */}}
{{- define "quietcore.hub.prometheus" -}}
{{- $p := (include "quietcore.hub" . | fromYaml).prometheus -}}
{{- $url := $p.url -}}
{{- $from := $p -}}
{{- if not $url -}}
{{- if or $p.token.secretName $p.ca.secretName $p.ca.configMapName -}}
{{- fail "hub.prometheus mounts a token or certificates, and hub.prometheus.url is empty: nobody would read them" -}}
{{- end -}}
{{- $url = dig "cpi" "specs" "prometheus" "url" "" .Values.config -}}
{{- $from = mustMergeOverwrite (include "quietcore.unmounted" . | fromYaml) (deepCopy (default dict .Values.specs)) -}}
{{- end -}}
{{- if eq $url "none" -}}
{{- $url = "" -}}
{{- end -}}
{{- if and $url (not (regexMatch "^https?://[^/]" $url)) -}}
{{- fail (printf "hub.prometheus.url is %s, must be such as http://prometheus.monitoring:9090, or none" $url) -}}
{{- end -}}
{{- if and $from.ca.secretName $from.ca.configMapName -}}
{{- fail (printf "hub.prometheus.ca.secretName is %s and hub.prometheus.ca.configMapName is %s: the certificates come from one of them" $from.ca.secretName $from.ca.configMapName) -}}
{{- end -}}
{{- $host := dig "host" "" (urlParse (default "http://none" $url)) -}}
url: {{ $url | quote }}
matchers: {{ $p.matchers | quote }}
token: {{ toYaml $from.token | nindent 2 }}
ca: {{ toYaml $from.ca | nindent 2 }}
mounted: {{ and $url (or $from.token.secretName $from.ca.secretName $from.ca.configMapName) | not | not }}
name: {{ not (regexMatch "^(\\[|[0-9.]+(:[0-9]+)?$)" $host) }}
port: {{ regexFind ":[0-9]+$" $host | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https:" $url)) }}
{{- end -}}
