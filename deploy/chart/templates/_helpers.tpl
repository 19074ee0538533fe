{{/* Names are fixed: a cluster has one set of webhooks, classes and policies. */}}

{{/* Labels by which pods of a part are found; they never change. */}}
{{- define "dranet.selector" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: dranet
{{- end }}

{{/* Labels of objects that all parts share. */}}
{{- define "dranet.labels" -}}
app.kubernetes.io/part-of: dranet
{{- end }}

{{/* Image of a program: list of the root and the program's name. */}}
{{- define "dranet.image" -}}
{{- $root := index . 0 }}{{ $program := index . 1 }}
{{- $image := $root.Values.image }}
{{- $digest := get $image.digests $program }}
{{- required "image.registry is empty: set it to the registry and path that has the images, for example --set image.registry=ghcr.io/you (deploy/images builds them)" $image.registry }}/{{ $program }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The cluster's version without the suffix of its cloud: v1.37.1. */}}
{{- define "dranet.kubernetesVersion" -}}
{{ regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version }}
{{- end }}

{{- define "dranet.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Log flags of every program. */}}
{{- define "dranet.logArgs" -}}
- --log={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- end }}

{{- define "dranet.extraArgs" -}}
{{- with . }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* Where a part may run. */}}
{{- define "dranet.placement" -}}
nodeSelector:
  kubernetes.io/os: linux
{{- with omit (.nodeSelector | default dict) "kubernetes.io/os" }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{/* One replica on each node, if there are enough nodes. */}}
{{- define "dranet.spread" -}}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
{{ include "dranet.selector" . | indent 6 }}
{{- end }}

{{/* Pod Security level `restricted`, for every pod except the driver's. */}}
{{- define "dranet.restrictedPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "dranet.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "dranet.probes" -}}
readinessProbe:
  httpGet:
    path: /readyz
    port: operations
  periodSeconds: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: operations
{{- end }}

{{/* A PodDisruptionBudget: list of the part's name, its replicas and the namespace. */}}
{{- define "dranet.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 0 }}
  namespace: {{ index . 2 }}
  labels:
{{ include "dranet.labels" . | indent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
{{ include "dranet.selector" (index . 0) | indent 6 }}
{{- end }}

{{/* Whether the driver gives devices to pods. */}}
{{- define "dranet.driverIsPlugin" -}}
{{- if and .Values.nodeDriver.enabled (eq .Values.nodeDriver.mode "full") }}yes{{ end }}
{{- end }}

{{- define "dranet.certManager" -}}
{{- if eq .Values.admission.certificate.source "cert-manager" }}yes{{ end }}
{{- end }}

{{/* Makes cert-manager write its CA into a webhook configuration. */}}
{{- define "dranet.injectAuthority" -}}
{{- if include "dranet.certManager" . -}}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/admission
{{- end }}
{{- end }}

{{/* A CustomResourceDefinition of the folder `files`: dict with the root and the file's name. */}}
{{- define "dranet.definition" -}}
{{- $crd := .root.Files.Get (printf "files/%s.yaml" .name) | fromYaml }}
{{- $metadata := $crd.metadata }}
{{- $_ := set $metadata "labels" (include "dranet.labels" .root | fromYaml) }}
{{- if .root.Values.crd.keep }}
{{- $_ := set $metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
{{- toYaml $crd }}
{{- end }}

{{/* The flag for an entry of nodeDriver.virtualFunctions. */}}
{{- define "dranet.virtualFunctions" -}}
--virtual-functions=numVfs={{ int .numVfs }}
{{- with .vendor }},vendor={{ . }}{{ end }}
{{- with .deviceID }},deviceID={{ . }}{{ end }}
{{- with .pfName }},pfName={{ . }}{{ end }}
{{- with .rootDevice }},rootDevice={{ . }}{{ end }}
{{- if .allowUplink }},allowUplink=true{{ end }}
{{- end }}

{{/* The address of the driver's health and metrics. Brackets are for IPv6. */}}
{{- define "dranet.driverOperations" -}}
{{- $asked := .Values.nodeDriver.operationsAddress }}
{{- if contains ":" $asked }}[{{ $asked }}]
{{- else if $asked }}{{ $asked }}
{{- else if eq .Values.monitoring.monitor "none" }}127.0.0.1
{{- else }}0.0.0.0
{{- end }}
{{- end }}

{{/* Whether there are drivers that are not built in. */}}
{{- define "dranet.drivers" -}}
{{- if or .Values.drivers.accelerators .Values.drivers.nics }}yes{{ end }}
{{- end }}

{{/* The file of these drivers. */}}
{{- define "dranet.driversFile" -}}
{{ toYaml (dict "accelerators" .Values.drivers.accelerators "nics" .Values.drivers.nics) }}
{{- end }}

{{/* Replaces pods when the drivers change: programs read them once. */}}
{{- define "dranet.driversAnnotation" -}}
{{- if include "dranet.drivers" . -}}
annotations:
  checksum/drivers: {{ include "dranet.driversFile" . | sha256sum }}
{{- end }}
{{- end }}

{{- define "dranet.driversArg" -}}
{{- if include "dranet.drivers" . -}}
- --drivers=/etc/dranet-drivers/drivers.yaml
{{- end }}
{{- end }}

{{- define "dranet.driversMount" -}}
{{- if include "dranet.drivers" . -}}
- name: drivers
  mountPath: /etc/dranet-drivers
  readOnly: true
{{- end }}
{{- end }}

{{- define "dranet.driversVolume" -}}
{{- if include "dranet.drivers" . -}}
- name: drivers
  configMap:
    name: dranet-drivers
{{- end }}
{{- end }}

{{/* Not empty if nodes bind NICs late. */}}
{{- define "dranet.bindsLate" -}}
{{- if or (eq .Values.nodeDriver.bindNics "late") .Values.nodeDriver.lateNodes }}true{{ end }}
{{- end }}

{{/* Rights to read the objects that say how many pods a job has: list of the size paths. */}}
{{- define "dranet.jobRules" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get]
- apiGroups: [apps]
  resources: [statefulsets, replicasets]
  verbs: [get]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get]
- apiGroups: [grove.io]
  resources: [podcliques]
  verbs: [get]
{{- range . }}
- apiGroups: [{{ .apiGroup }}]
  resources: [{{ .resource }}]
  verbs: [get]
{{- end }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [mpijobs, pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs]
  verbs: [get]
{{- end }}
