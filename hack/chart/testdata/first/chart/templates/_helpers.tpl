{{- define "quietcore.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quietcore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "quietcore.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quietcore.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "quietcore.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "quietcore.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "quietcore.serviceAccount" . }}
{{- end -}}

{{- define "quietcore.selector" -}}
app.kubernetes.io/name: {{ include "quietcore.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quietcore.labels" -}}
{{ include "quietcore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "quietcore.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The daemon's file: what the chart knows, under what the user says. */}}
{{- define "quietcore.config" -}}
{{- $base := dict "apiVersion" "quietcore.dev/v1alpha1" "kind" "Configuration" "listen" ":9464" -}}
{{- if not .Values.kubelet.mount -}}
{{- $_ := set $base "node" (dict "kubelet" (dict "stateFile" "" "configFile" "" "podResources" "")) -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $base (deepCopy .Values.config)) -}}
{{- end -}}

{{/* What the templates need to know of the file, with the daemon's defaults. */}}
{{- define "quietcore.facts" -}}
{{- $c := include "quietcore.config" . | fromYaml -}}
{{- $k := default dict $c.kubernetes -}}
{{- $cgroup := default dict $c.cgroup -}}
{{- $enforce := ne (default "enforce" $c.mode) "observe" -}}
{{- $driver := default "auto" $cgroup.driver -}}
{{- $listen := "" -}}
{{- if hasKey $c "listen" -}}{{- $listen = $c.listen -}}{{- end -}}
{{- $api := ne (default "auto" $k.api) "off" -}}
{{- $nrt := default dict $k.nodeResourceTopology -}}
enforce: {{ $enforce }}
api: {{ $api }}
pods: {{ and $api (not (eq (toString $k.pods) "false")) }}
labels: {{ and $api (not (eq (toString $k.labels) "false")) }}
events: {{ and $api (not (eq (toString $k.events) "false")) }}
topology: {{ and $api (not (eq (toString $nrt.enabled) "false")) }}
listen: {{ $listen | quote }}
port: {{ if $listen }}{{ regexFind "[0-9]+$" $listen }}{{ else }}0{{ end }}
nriDir: {{ dir (default "/var/run/nri/nri.sock" (default dict $c.nri).socket) }}
stateDir: {{ default "/var/lib/quietcore" (default dict $c.state).dir }}
socketDir: {{ dir (default "/run/quietcore/quietcore.sock" $c.socket) }}
cgroupRoot: {{ default "/sys/fs/cgroup" $cgroup.root }}
cgroupWrite: {{ and $enforce (ne $driver "systemd") }}
systemd: {{ and $enforce (ne $driver "cgroupfs") }}
busDir: {{ if $cgroup.bus }}{{ dir $cgroup.bus }}{{ else }}/run/systemd{{ end }}
{{- end -}}

{{/* Keys that take effect only at a start of the daemon: docs/configuration.md, "Reloading". */}}
{{- define "quietcore.restartKeys" -}}
{{- $c := include "quietcore.config" . | fromYaml -}}
{{- $node := default dict $c.node -}}
{{- $kubelet := pick (default dict $node.kubelet) "stateFile" "configFile" "podResources" -}}
{{- $rest := pick $c "mode" "nri" "cgroup" "inject" "kubernetes" "sysfs" "state" "socket" "listen" -}}
{{- toYaml (dict "rest" $rest "name" $node.name "kubelet" $kubelet "format" (default dict $c.log).format) | sha256sum -}}
{{- end -}}

{{- define "quietcore.hasPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* UID 0 owns every file and socket that is used; no capability adds to that. */}}
{{- define "quietcore.securityContext" -}}
privileged: false
runAsUser: 0
runAsGroup: 0
runAsNonRoot: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with .capabilities }}
  add: {{- toYaml . | nindent 4 }}
  {{- end }}
seccompProfile:
  type: RuntimeDefault
{{- with .root.Values.security.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.security.appArmorProfile }}
appArmorProfile: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* CEL: the labels and annotations that the daemon reads of a pod. */}}
{{- define "quietcore.podKeys" -}}
['koordinator.sh/qosClass', 'scheduling.koordinator.sh/resource-spec', 'scheduling.koordinator.sh/resource-status', 'scheduling.koordinator.sh/numa-topology-spec', 'quietcore.dev/smt', 'quietcore.dev/managed', 'quietcore.dev/cap']
{{- end -}}

{{- define "quietcore.isScheduler" -}}
{{- $names := list -}}
{{- range .Values.admissionPolicies.schedulers -}}
{{- $names = append $names (printf "'%s'" (. | replace "\\" "\\\\" | replace "'" "\\'")) -}}
{{- end -}}
{{- printf "request.userInfo.username in [%s]" (join ", " $names) | quote -}}
{{- end -}}

{{/* CEL variable: may this pod claim .resource? The namespace says so, or the pod's service account has the permission:
the user who creates the pod is a controller most of the time. */}}
{{- define "quietcore.mayClaim" -}}
{{- $claims := .root.Values.admissionPolicies.claims -}}
- name: {{ .name }}
  expression: >-
    namespaceObject.metadata.?labels[?'{{ $claims.labelPrefix }}/{{ .label }}'].orValue('') == 'allowed'
    {{- if $claims.authorizer }}
    || authorizer.serviceAccount(request.namespace, variables.account).group('quietcore.dev').resource('{{ .resource }}').namespace(request.namespace).check('claim').allowed()
    {{- end }}
{{- end -}}

{{/* CEL: a sentence that says who may not do what, and the way out. */}}
{{- define "quietcore.refusal" -}}
{{- $claims := .root.Values.admissionPolicies.claims -}}
{{- $way := printf "label the namespace %s/%s: allowed" $claims.labelPrefix .label -}}
{{- if $claims.authorizer -}}
{{- $way = printf "%s, or let the service account \" + variables.account + \" claim %s.quietcore.dev" $way .resource -}}
{{- end -}}
{{- printf "\"namespace \" + request.namespace + \" may not %s: %s\"" .what $way | squote -}}
{{- end -}}
