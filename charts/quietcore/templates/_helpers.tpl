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
{{- include "quietcore.imageOf" (dict "root" . "image" .Values.image "program" "quietcore") -}}
{{- end -}}

{{/* A published chart has the digests of its images as annotations. They hold for its own tag, not for one that is set. */}}
{{- define "quietcore.imageOf" -}}
{{- with .image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else if .tag -}}
{{ .repository }}:{{ .tag }}
{{- else -}}
{{ .repository }}:{{ $.root.Chart.AppVersion }}
{{- with index (default dict $.root.Chart.Annotations) (printf "digest.quietcore.dev/%s" $.program) -}}
@{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The daemon's configuration file: the chart's defaults, overridden by the user's values. While a node is restored, the file of `quietcore restore`. */}}
{{- define "quietcore.config" -}}
{{- $base := dict "apiVersion" "quietcore.dev/v1alpha1" "kind" "Configuration" "listen" ":9464" "health" (dict "listen" ":9466") -}}
{{- if eq (toString (dig "kubernetes" "api" "" .Values.config)) "off" -}}
{{- $_ := set $base "listen" "127.0.0.1:9464" -}}
{{- end -}}
{{- if ((.Values.metrics).tls).secretName -}}
{{- $_ := set $base "metrics" (dict "certFile" "/etc/quietcore-metrics/tls.crt" "keyFile" "/etc/quietcore-metrics/tls.key") -}}
{{- end -}}
{{- if not .Values.kubelet.mount -}}
{{- $_ := set $base "node" (dict "kubelet" (dict "stateFile" "" "configFile" "" "podResources" "")) -}}
{{- end -}}
{{- $specs := include "quietcore.specs" . | fromYaml -}}
{{- with $specs.keys -}}
{{- $_ := set $base "cpi" (dict "specs" (dict "prometheus" .)) -}}
{{- end -}}
{{- if (default dict .Values.startupTaint).enabled -}}
{{- $_ := set $base "kubernetes" (dict "startupTaint" true) -}}
{{- end -}}
{{- $config := mustMergeOverwrite $base (deepCopy .Values.config) -}}
{{- if .canary -}}
{{- $config = mustMergeOverwrite $config (include "quietcore.canaryConfig" . | fromYaml) -}}
{{- end -}}
{{- if (.Values.restore).enabled -}}
{{- $_ := set $config "mode" "enforce" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* What the file of canaries says in place of the others'. */}}
{{- define "quietcore.canaryConfig" -}}
{{- $canary := default dict .Values.canary -}}
{{- if $canary.nodeLabel -}}{{- pick $canary "reclaim" "suppression" | toYaml -}}{{- else -}}{}{{- end -}}
{{- end -}}

{{/* Name of a DaemonSet and its ConfigMap. The templates are rendered a second time with .canary set. */}}
{{- define "quietcore.daemonName" -}}
{{- $name := include "quietcore.fullname" . -}}
{{- if .canary -}}{{- printf "%s-canary" ($name | trunc 56 | trimSuffix "-") -}}{{- else -}}{{- $name -}}{{- end -}}
{{- end -}}

{{/* The labels by which a DaemonSet knows its pods. That of the others is what it always was, since it cannot be changed: it matches
canaries as well, which belong to their own DaemonSet. */}}
{{- define "quietcore.daemonSelector" -}}
{{ include "quietcore.selector" . }}
{{- if .canary }}
quietcore.dev/canary: "true"
{{- end }}
{{- end -}}

{{/* Nodes with the canaries' label have no other daemon. */}}
{{- define "quietcore.affinity" -}}
{{- $affinity := deepCopy (default dict .Values.affinity) -}}
{{- with (.Values.canary).nodeLabel -}}
{{- $rule := dict "key" . "operator" (ternary "Exists" "DoesNotExist" (not (empty $.canary))) -}}
{{- $terms := list -}}
{{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity -}}
{{- $terms = append $terms (set (deepCopy .) "matchExpressions" (append (default list .matchExpressions) $rule)) -}}
{{- end -}}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" (mergeOverwrite (default dict $affinity.nodeAffinity) $required) -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* The file that the daemon runs with. */}}
{{- define "quietcore.runConfig" -}}
{{- $config := include "quietcore.config" . | fromYaml -}}
{{- if (.Values.restore).enabled -}}
{{- $_ := set $config "mode" "observe" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The Prometheus that daemons ask for specs: what config.cpi.specs.prometheus says, with what `specs` mounts. Where both say nothing it is
the hub's, if that knows one cluster and the chart gives it the rules. keys are those of the file that the values leave out. */}}
{{- define "quietcore.specs" -}}
{{- $said := dig "cpi" "specs" "prometheus" dict .Values.config -}}
{{- $from := mustMergeOverwrite (include "quietcore.unmounted" . | fromYaml) (deepCopy (default dict .Values.specs)) -}}
{{- $ca := or $from.ca.secretName $from.ca.configMapName -}}
{{- if and $from.token.secretName $said.tokenFile -}}
{{- fail (printf "specs.token.secretName is %s and config.cpi.specs.prometheus.tokenFile is %s: the first mounts the token and sets the second, say only one of them" $from.token.secretName $said.tokenFile) -}}
{{- end -}}
{{- if and $from.ca.secretName $from.ca.configMapName -}}
{{- fail (printf "specs.ca.secretName is %s and specs.ca.configMapName is %s: the certificates come from one of them" $from.ca.secretName $from.ca.configMapName) -}}
{{- end -}}
{{- if and $ca $said.caFile -}}
{{- fail (printf "specs.ca is %s and config.cpi.specs.prometheus.caFile is %s: the first mounts the certificates and sets the second, say only one of them" $ca $said.caFile) -}}
{{- end -}}
{{- if and (or $from.token.secretName $ca) (not $said.url) -}}
{{- fail "specs mounts a token or certificates, and config.cpi.specs.prometheus.url is empty: nobody would read them" -}}
{{- end -}}
{{- $keys := dict -}}
{{- $hub := (include "quietcore.hub" . | fromYaml).prometheus -}}
{{- $ruled := include "quietcore.ruled" . -}}
{{- $counting := ne (toString (dig "cpi" "mode" "observe" .Values.config)) "off" -}}
{{- if and $ruled $counting (not (or (hasKey $said "url") $said.tokenFile $said.caFile)) (not $hub.matchers) (not (has $hub.url (list "" "none"))) -}}
{{- $_ := set $keys "url" $hub.url -}}
{{- $from = include "quietcore.hub.prometheus" . | fromYaml -}}
{{- end -}}
{{- if $from.token.secretName -}}{{- $_ := set $keys "tokenFile" "/etc/quietcore-prometheus/token" -}}{{- end -}}
{{- if or $from.ca.secretName $from.ca.configMapName -}}{{- $_ := set $keys "caFile" "/etc/quietcore-prometheus/ca.crt" -}}{{- end -}}
{{- dict "keys" $keys "token" $from.token "ca" $from.ca | toYaml -}}
{{- end -}}

{{/* Whether Prometheus gets the rules of specs from this chart; empty: it does not. */}}
{{- define "quietcore.ruled" -}}
{{- $rules := default dict (.Values.metrics).rules -}}
{{- if and $rules.enabled $rules.specs (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule") -}}true{{- end -}}
{{- end -}}

{{/* A token and certificates that nobody mounts, as an older chart's values may lack them. */}}
{{- define "quietcore.unmounted" -}}
token: {secretName: "", key: token}
ca: {configMapName: "", secretName: "", key: ca.crt}
{{- end -}}

{{/* The files of a token and certificates, for who asks a Prometheus; nothing where there are none. */}}
{{- define "quietcore.prometheusVolume" -}}
{{- if or .token.secretName .ca.secretName .ca.configMapName -}}
- name: prometheus
  projected:
    sources:
      {{- with .token.secretName }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $.token.key }}, path: token}]
      {{- end }}
      {{- with .ca.secretName }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $.ca.key }}, path: ca.crt}]
      {{- end }}
      {{- with .ca.configMapName }}
      - configMap:
          name: {{ . }}
          items: [{key: {{ $.ca.key }}, path: ca.crt}]
      {{- end }}
{{- end -}}
{{- end -}}

{{/* What the templates need to know of the file, with the daemon's defaults. */}}
{{- define "quietcore.facts" -}}
{{- $c := include "quietcore.config" . | fromYaml -}}
{{- $k := default dict $c.kubernetes -}}
{{- $cgroup := default dict $c.cgroup -}}
{{- $enforce := ne (default "enforce" $c.mode) "observe" -}}
{{- $driver := default "auto" $cgroup.driver -}}
{{- $listen := default "" $c.listen -}}
{{- $health := default "" (default dict $c.health).listen -}}
{{- $local := "^(127\\.|localhost:|\\[::1\\])" -}}
{{- $api := ne (default "auto" $k.api) "off" -}}
{{- $nrt := default dict $k.nodeResourceTopology -}}
{{- $reclaim := default dict $c.reclaim -}}
{{- $cpi := default dict $c.cpi -}}
{{- $dra := default dict $c.dra -}}
{{- $lend := false -}}
{{- $evict := false -}}
{{- range list $reclaim (mustMergeOverwrite (deepCopy $reclaim) (default dict (include "quietcore.canaryConfig" . | fromYaml).reclaim)) -}}
{{- $enforced := and $api $enforce (eq (toString .mode) "enforce") -}}
{{- $lend = or $lend $enforced -}}
{{- $evict = or $evict (and $enforced (eq (toString .evict) "true")) -}}
{{- end -}}
{{- $counting := ne (toString (default "observe" $cpi.mode)) "off" -}}
{{- $url := ternary (dig "specs" "prometheus" "url" "" $cpi) "" $counting -}}
{{- if and $url (not (regexMatch "^https?://[^/]" $url)) -}}
{{- fail (printf "config.cpi.specs.prometheus.url is %s, must be such as http://prometheus.monitoring:9090" $url) -}}
{{- end -}}
{{- $host := ternary (dig "host" "" (urlParse (default "http://none" $url))) "" (not (empty $url)) -}}
enforce: {{ $enforce }}
api: {{ $api }}
pods: {{ and $api (not (eq (toString $k.pods) "false")) }}
labels: {{ and $api (not (eq (toString $k.labels) "false")) }}
events: {{ and $api (not (eq (toString $k.events) "false")) }}
policy: {{ and $api (eq (toString $k.policy) "true") }}
startupTaint: {{ and $api (eq (toString $k.startupTaint) "true") }}
topology: {{ and $api (not (eq (toString $nrt.enabled) "false")) }}
port: {{ if or (not $listen) (regexMatch $local $listen) }}0{{ else }}{{ regexFind "[0-9]+$" $listen }}{{ end }}
auth: {{ and $listen (not (regexMatch $local $listen)) (ne (default "on" (default dict $c.metrics).auth) "off") | not | not }}
healthLocal: {{ regexMatch $local $health }}
healthPort: {{ if $health }}{{ regexFind "[0-9]+$" $health }}{{ else }}0{{ end }}
nriDir: {{ dir (default "/var/run/nri/nri.sock" (default dict $c.nri).socket) }}
stateDir: {{ default "/var/lib/quietcore" (default dict $c.state).dir }}
socketDir: {{ dir (default "/run/quietcore/quietcore.sock" $c.socket) }}
cgroupRoot: {{ default "/sys/fs/cgroup" $cgroup.root }}
cgroupWrite: {{ and $enforce (ne $driver "systemd") }}
systemd: {{ and $enforce (ne $driver "cgroupfs") }}
counting: {{ $counting }}
ruled: {{ include "quietcore.ruled" . | not | not }}
specs: {{ include "quietcore.prometheusVolume" (include "quietcore.specs" . | fromYaml) | toJson }}
resctrl: {{ default "" $cpi.resctrl | quote }}
masked: {{ ternary .Values.kubelet.masked (list "pods") (hasKey .Values.kubelet "masked") | toJson }}
prometheus: {{ not (empty $url) }}
prometheusName: {{ and $host (not (regexMatch "^(\\[|[0-9.]+(:[0-9]+)?$)" $host)) | not | not }}
prometheusPort: {{ regexFind ":[0-9]+$" $host | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https:" $url)) }}
lend: {{ $lend }}
nodeStatus: {{ or $lend (and $api .Values.rbac.keepLending) }}
evict: {{ or $evict (and $api $enforce (eq (toString $cpi.mode) "enforce") (gt (int $cpi.evictAfter) 0)) }}
dra: {{ and $api $enforce (eq (toString $dra.mode) "on") }}
draPluginDir: {{ default "/var/lib/kubelet/plugins/cpu.quietcore.dev" $dra.pluginDir }}
draRegistryDir: {{ default "/var/lib/kubelet/plugins_registry" $dra.registryDir }}
busDir: {{ if $cgroup.bus }}{{ dir $cgroup.bus }}{{ else }}/run/systemd{{ end }}
{{- end -}}

{{/* The values of the keys that need a restart of the daemon. files/restart-keys.txt lists them; it is generated from the daemon's code. */}}
{{- define "quietcore.restartKeys" -}}
{{- $config := include "quietcore.runConfig" . | fromYaml -}}
{{- $said := dict -}}
{{- range $key := .Files.Get "files/restart-keys.txt" | required "files/restart-keys.txt is missing from the chart" | trim | splitList "\n" -}}
{{- $value := $config -}}
{{- range splitList "." $key -}}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) .) "" (kindIs "map" $value) -}}
{{- end -}}
{{- $_ := set $said $key $value -}}
{{- end -}}
{{- toYaml $said | sha256sum -}}
{{- end -}}

{{/* The service account whose tokens the daemons take of people, and the roles of these. */}}
{{- define "quietcore.fleetReader" -}}
{{- printf "%s-reader" (include "quietcore.fullname" . | trunc 52 | trimSuffix "-") -}}
{{- end -}}

{{/* Subjects of a binding, with the API group of users and groups where none is said. */}}
{{- define "quietcore.readerSubjects" -}}
{{- $list := list -}}
{{- range . -}}
{{- if ne .kind "ServiceAccount" -}}
{{- $list = append $list (merge (deepCopy .) (dict "apiGroup" "rbac.authorization.k8s.io")) -}}
{{- else -}}
{{- $list = append $list . -}}
{{- end -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{- define "quietcore.hasReader" -}}
{{- $facts := include "quietcore.facts" . | fromYaml -}}
{{- if and $facts.auth (ne (toString (default dict .Values.reader).create) "false") }}true{{ end -}}
{{- end -}}

{{/* OpenShift's constraints are made where they are known, or asked for. */}}
{{- define "quietcore.hasSCC" -}}
{{- $scc := default "auto" (.Values.openshift).scc -}}
{{- if or (eq $scc "always") (and (eq $scc "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}true{{ end -}}
{{- end -}}

{{- define "quietcore.hasPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* UID 0 owns every file and socket that is used; no capability adds to that. Counting CPU performance takes two. */}}
{{- define "quietcore.capabilities" -}}
{{- $facts := include "quietcore.facts" . | fromYaml -}}
{{- concat (ternary (list "BPF" "PERFMON") list $facts.counting) (include "quietcore.resctrlCapabilities" . | fromYamlArray) .Values.security.capabilities | uniq | toYaml -}}
{{- end -}}

{{/* The folders of resctrl are read-only even to root: groups are made and removed by who overrides that. */}}
{{- define "quietcore.resctrlCapabilities" -}}
{{- ternary (list "DAC_OVERRIDE") list (not (empty (include "quietcore.facts" . | fromYaml).resctrl)) | toYaml -}}
{{- end -}}

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
seccompProfile: {{- toYaml (default (dict "type" "RuntimeDefault") .root.Values.security.seccompProfile) | nindent 2 }}
{{- with .root.Values.security.seLinuxOptions | default (ternary (dict "type" "spc_t") dict (not (empty (include "quietcore.hasSCC" .root)))) }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.security.appArmorProfile }}
appArmorProfile: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* CEL: the labels and annotations that the daemon reads of a pod. */}}
{{- define "quietcore.podKeys" -}}
['koordinator.sh/qosClass', 'scheduling.koordinator.sh/resource-spec', 'scheduling.koordinator.sh/resource-status', 'scheduling.koordinator.sh/numa-topology-spec', 'quietcore.dev/smt', 'quietcore.dev/managed', 'quietcore.dev/cap', 'quietcore.dev/heal', 'quietcore.dev/exclusive-containers', 'quietcore.dev/isolated-cpus']
{{- end -}}

{{- define "quietcore.isScheduler" -}}
{{- $names := list -}}
{{- $schedulers := .Values.admissionPolicies.schedulers -}}
{{- if (.Values.scheduler).enabled -}}
{{- $schedulers = append $schedulers (include "quietcore.scheduler.user" .) -}}
{{- end -}}
{{- range $schedulers -}}
{{- $names = append $names (printf "'%s'" (. | replace "\\" "\\\\" | replace "'" "\\'")) -}}
{{- end -}}
{{- printf "request.userInfo.username in [%s]" (join ", " $names) | quote -}}
{{- end -}}

{{/* CEL variable: may this pod claim .resource? Either the namespace allows it, or the pod's service account has the permission:
the user who creates the pod is mostly a controller. */}}
{{- define "quietcore.mayClaim" -}}
{{- $claims := .root.Values.admissionPolicies.claims -}}
- name: {{ .name }}
  expression: >-
    namespaceObject.metadata.?labels[?'{{ $claims.labelPrefix }}/{{ .label }}'].orValue('') == 'allowed'
    {{- if $claims.authorizer }}
    || authorizer.serviceAccount(request.namespace, variables.account).group('quietcore.dev').resource('{{ .resource }}').namespace(request.namespace).check('claim').allowed()
    {{- end }}
{{- end -}}

{{/* CEL variables: does a pod, or a template of pods, ask for what its requests do not pay for? The same as policy/authority.go on the node.
JSON text is not decoded here: a word in it counts wherever it stands, and so does an escape that may hide it. What the file gives to every pod is no
power of the pod. */}}
{{- define "quietcore.powerVariables" -}}
{{- $allocation := default dict .root.Values.config.allocation -}}
{{- $words := list -}}
{{- range without (list "isolate" "roundup") (toString $allocation.smt) -}}{{- $words = append $words (printf "'%s'" .) -}}{{- end -}}
- name: wantsCores
  expression: "variables.class in ['LSE', 'LSR'] && {{ .pod }}.?metadata.?annotations[?'quietcore.dev/smt'].orValue('') in [{{ join ", " $words }}]"
- name: wantsNodes
  expression: >-
    !(variables.class in ['BE', 'SYSTEM']) && ['Required', '\\'].exists(w, {{ .pod }}.?metadata.?annotations[?'scheduling.koordinator.sh/numa-topology-spec'].orValue('').contains(w))
    {{- if and $allocation.exclusiveRequired (ne (toString $allocation.exclusivePolicy) "NUMANodeLevel") }}
    || variables.class in ['LSE', 'LSR'] && ['NUMANodeLevel', '\\'].exists(w, {{ .pod }}.?metadata.?annotations[?'scheduling.koordinator.sh/resource-spec'].orValue('').contains(w))
    {{- end }}
- name: wantsIsolated
  expression: "variables.class in ['LSE', 'LSR'] && {{ .pod }}.?metadata.?annotations[?'quietcore.dev/isolated-cpus'].orValue('') == 'required'"
- name: wantsAlone
  expression: "{{ .pod }}.?metadata.?annotations[?'quietcore.dev/managed'].orValue('') == 'false'"
- name: wantsNothing
  expression: >-
    variables.class == 'LS' && !['cpu', 'memory'].exists(r,
    ({{ .pod }}.spec.containers + {{ .pod }}.spec.?initContainers.orValue([])).exists(c,
    quantity(string(c.?resources.?requests[?r].orValue('0'))).isGreaterThan(quantity('0')) ||
    quantity(string(c.?resources.?limits[?r].orValue('0'))).isGreaterThan(quantity('0'))) ||
    quantity(string({{ .pod }}.spec.?resources.?requests[?r].orValue('0'))).isGreaterThan(quantity('0')) ||
    quantity(string({{ .pod }}.spec.?resources.?limits[?r].orValue('0'))).isGreaterThan(quantity('0')))
{{- include "quietcore.mayClaim" (dict "root" .root "name" "cores" "label" "whole-cores" "resource" "wholecores") | nindent 0 }}
{{- include "quietcore.mayClaim" (dict "root" .root "name" "nodes" "label" "numa-exclusive" "resource" "numaexclusive") | nindent 0 }}
{{- include "quietcore.mayClaim" (dict "root" .root "name" "isolated" "label" "isolated-cpus" "resource" "isolatedcpus") | nindent 0 }}
{{- include "quietcore.mayClaim" (dict "root" .root "name" "alone" "label" "unmanaged" "resource" "unmanagedpods") | nindent 0 }}
{{- include "quietcore.mayClaim" (dict "root" .root "name" "nothing" "label" "without-request" "resource" "withoutrequest") | nindent 0 }}
{{- end -}}

{{/* CEL validations of these: of the powers that the profile, or a list of the file, closes. before is what lets a pod pass all the same. */}}
{{- define "quietcore.powerValidations" -}}
{{- $authority := default dict .root.Values.config.authority -}}
{{- range list
  (dict "key" "wholeCores" "wants" "wantsCores" "may" "cores" "what" "keep siblings idle or have surplus CPUs beyond its requests" "label" "whole-cores" "resource" "wholecores")
  (dict "key" "numaExclusive" "wants" "wantsNodes" "may" "nodes" "what" "keep other pods off its NUMA nodes (Required)" "label" "numa-exclusive" "resource" "numaexclusive")
  (dict "key" "isolatedCPUs" "always" true "wants" "wantsIsolated" "may" "isolated" "what" "own CPUs that the kernel isolates (quietcore.dev/isolated-cpus)" "label" "isolated-cpus" "resource" "isolatedcpus")
  (dict "key" "unmanaged" "wants" "wantsAlone" "may" "alone" "what" "leave pods unmanaged (quietcore.dev/managed: false)" "label" "unmanaged" "resource" "unmanagedpods")
  (dict "key" "withoutRequest" "wants" "wantsNothing" "may" "nothing" "what" "use class LS for BestEffort pods, which request nothing" "label" "without-request" "resource" "withoutrequest") }}
{{- if or .always (ne (toString $authority.profile) "open") (dig .key "namespaces" list $authority) }}
- expression: "{{ $.before }}!variables.{{ .wants }} || variables.{{ .may }}"
  reason: Forbidden
  messageExpression: {{ include "quietcore.refusal" (dict "root" $.root "what" .what "label" .label "resource" .resource) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* CEL: a sentence that names the user, what is denied, and the way out. */}}
{{- define "quietcore.refusal" -}}
{{- $claims := .root.Values.admissionPolicies.claims -}}
{{- $way := printf "label the namespace %s/%s: allowed" $claims.labelPrefix .label -}}
{{- if $claims.authorizer -}}
{{- $way = printf "%s, or let the service account \" + variables.account + \" claim %s.quietcore.dev" $way .resource -}}
{{- end -}}
{{- printf "\"namespace \" + request.namespace + \" may not %s: %s\"" .what $way | squote -}}
{{- end -}}

{{/* Bytes of a quantity of Kubernetes or of the Go runtime; 0 for what is neither. */}}
{{- define "quietcore.bytes" -}}
{{- $text := toString . | trimSuffix "B" -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $factor := get (dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) $unit | default 0 -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) $factor | floor | int64 -}}
{{- end -}}

{{/* The Go runtime must give way before the kernel kills it. */}}
{{- define "quietcore.memoryFits" -}}
{{- $hard := dig "limits" "memory" "" (default dict .Values.resources) -}}
{{- if and .Values.goMemLimit $hard -}}
{{- if ge (include "quietcore.bytes" .Values.goMemLimit | int64) (include "quietcore.bytes" $hard | int64) -}}
{{- fail (printf "goMemLimit is %s, must be below resources.limits.memory, which is %s: the rest is the kernel's, see docs/counting.md" .Values.goMemLimit (toString $hard)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Environment of the daemon. */}}
{{- define "quietcore.env" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
# kubelet's probes come from these, or from the pod's gateway.
- name: NODE_IPS
  valueFrom: {fieldRef: {fieldPath: {{ ternary "status.hostIPs" "status.hostIP" (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}}}
{{- with .Values.goMemLimit }}
- name: GOMEMLIMIT
  value: {{ . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the daemon has of its node; write: as far as it writes at all. */}}
{{- define "quietcore.mounts" -}}
{{- $facts := .facts -}}
- name: config
  mountPath: /etc/quietcore
  readOnly: true
- name: nri
  mountPath: {{ $facts.nriDir }}
  readOnly: true
- name: cgroup
  mountPath: {{ $facts.cgroupRoot }}
  readOnly: {{ not (and .write $facts.cgroupWrite) }}
- name: state
  mountPath: {{ $facts.stateDir }}
- name: run
  mountPath: {{ $facts.socketDir }}
{{- if and .write $facts.systemd }}
- name: systemd
  mountPath: {{ $facts.busDir }}
  readOnly: true
{{- end }}
- name: cdi-etc
  mountPath: /etc/cdi
  readOnly: true
- name: cdi-run
  mountPath: /var/run/cdi
  readOnly: {{ not (and .write $facts.dra) }}
{{- if .root.Values.kubelet.mount }}
- name: kubelet
  mountPath: /var/lib/kubelet
  readOnly: true
  # A volume that kubelet unmounts must not stay busy in here.
  mountPropagation: HostToContainer
{{- range $facts.masked }}
- name: masked
  mountPath: /var/lib/kubelet/{{ . }}
  readOnly: true
{{- end }}
{{- end }}
{{- if and .write $facts.resctrl }}
- name: resctrl
  mountPath: {{ $facts.resctrl }}
  # It may be mounted later.
  mountPropagation: HostToContainer
{{- end }}
{{- if and .write $facts.dra }}
# kubelet has the sockets by the same paths.
- name: dra-plugin
  mountPath: {{ $facts.draPluginDir }}
- name: dra-registry
  mountPath: {{ $facts.draRegistryDir }}
{{- end }}
{{- if $facts.specs }}
- name: prometheus
  mountPath: /etc/quietcore-prometheus
  readOnly: true
{{- end }}
{{- if ((.root.Values.metrics).tls).secretName }}
- name: metrics
  mountPath: /etc/quietcore-metrics
  readOnly: true
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
