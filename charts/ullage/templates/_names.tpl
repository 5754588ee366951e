{{- /*
SPDX-FileCopyrightText: The Ullage Authors
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{- define "ullage.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- /* What the names of objects begin with: never the release's, since a cluster has one installation. */ -}}
{{- define "ullage.fullname" -}}
{{ .Values.fullnameOverride | default (include "ullage.name" .) }}
{{- end }}

{{- /* Reference of an image: (list root image). A digest wins over the tag. */ -}}
{{- define "ullage.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 }}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "ullage.selector" -}}
app.kubernetes.io/name: {{ include "ullage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Labels of every object; ours win over commonLabels. */ -}}
{{- define "ullage.labels" -}}
{{- $own := dict
  "app.kubernetes.io/name" (include "ullage.name" .)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) }}
{{- toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{- /* Labels of a component and its pods: (list root component extra). */ -}}
{{- define "ullage.componentLabels" -}}
{{- $own := fromYaml (include "ullage.labels" (index . 0)) }}
{{- $own = set $own "app.kubernetes.io/component" (index . 1) }}
{{- toYaml (merge $own (index . 2)) }}
{{- end }}

{{- /* Annotations of a component's pods: (list root port extra); those of the values win. */ -}}
{{- define "ullage.podAnnotations" -}}
{{- $own := dict }}
{{- $monitoring := (index . 0).Values.monitoring }}
{{- if not (or $monitoring.podMonitor.enabled $monitoring.secureMetrics.enabled) }}
{{- $own = dict "prometheus.io/scrape" "true" "prometheus.io/port" (index . 1) }}
{{- end }}
{{- toYaml (merge (deepCopy (index . 2)) $own) }}
{{- end }}

{{- define "ullage.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Variables that bring the driver's library for queries, and no GPU to compute on. */ -}}
{{- define "ullage.driverLibrary" -}}
# read by the runtime class nvidia, which brings the driver's library for queries
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- end }}

{{- /* uid 0 and nothing beyond it. */ -}}
{{- define "ullage.rootWithoutPower" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Version of MutatingAdmissionPolicy that the API server serves; empty where it serves none. */ -}}
{{- define "ullage.mutatingPolicyVersion" -}}
{{- $served := "" }}
{{- range $version := list "v1alpha1" "v1beta1" "v1" }}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" $version) }}
{{- $served = $version }}
{{- end }}
{{- end }}
{{- $served }}
{{- end }}

{{- /* Whether the webhook has a certificate to serve with; empty where it has none. */ -}}
{{- define "ullage.webhookHasCertificate" -}}
{{- with .Values.admissionPolicy.adoption.webhook }}
{{- if or .certManager.enabled (and .tlsSecret .caBundle) }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* What prepares labelled pods: Policy or Webhook; empty where nothing does. */ -}}
{{- define "ullage.adoptedBy" -}}
{{- $mode := .Values.admissionPolicy.adoption.mode }}
{{- if not .Values.admissionPolicy.adoption.enabled }}
{{- else if and (ne $mode "Webhook") (include "ullage.mutatingPolicyVersion" .) }}Policy
{{- else if eq $mode "Policy" }}
{{- else if include "ullage.webhookHasCertificate" . }}Webhook
{{- else if eq $mode "Webhook" }}{{ fail "admissionPolicy.adoption.webhook: set certManager.enabled, or name a Secret with tls.crt and tls.key as tlsSecret and give its authority as caBundle" }}
{{- end }}
{{- end }}

{{- /* Secret of the certificate that serves the webhook. */ -}}
{{- define "ullage.webhookSecret" -}}
{{ .Values.admissionPolicy.adoption.webhook.tlsSecret | default (printf "%s-webhook" (include "ullage.fullname" .)) }}
{{- end }}

{{- /* A certificate of cert-manager for a Service, if it is asked for: (list root name secret values). */ -}}
{{- define "ullage.certificate" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $asked := index . 3 }}
{{- if $asked.enabled }}
{{- if not $asked.issuerRef }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "ullage.labels" $root | nindent 4 }}
spec:
  selfSigned: {}
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "ullage.labels" $root | nindent 4 }}
spec:
  secretName: {{ index . 2 }}
  dnsNames: [{{ $name }}.{{ $root.Release.Namespace }}.svc]
  issuerRef: {{- toYaml ($asked.issuerRef | default (dict "kind" "Issuer" "name" $name)) | nindent 4 }}
{{- end }}
{{- end }}

{{- /* Whether the API server asks for warnings: where there is a certificate to answer with. */ -}}
{{- define "ullage.warns" -}}
{{- with .Values.admission }}
{{- if or .certManager.enabled (and .tlsSecret .caBundle) }}yes
{{- else if .tlsSecret }}{{ fail "admission.tlsSecret: give its authority as admission.caBundle, or set admission.certManager.enabled" }}
{{- else if .caBundle }}{{ fail "admission.caBundle: name the Secret with tls.crt and tls.key as admission.tlsSecret" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Secret of the certificate that serves warnings. */ -}}
{{- define "ullage.admissionSecret" -}}
{{ .Values.admission.tlsSecret | default (printf "%s-admission" (include "ullage.fullname" .)) }}
{{- end }}

{{- /* CEL: whether a pod or its template bears a label that shares devices. */ -}}
{{- define "ullage.asksToShare" -}}
['ullage.dev/share', 'ullage.dev/devices'].exists(k, k in {{ . }}.?metadata.?labels.orValue({}))
{{- end }}

{{- /* Secret of the certificate that serves the metrics. */ -}}
{{- define "ullage.metricsSecret" -}}
{{- $secure := .Values.monitoring.secureMetrics }}
{{- if $secure.tlsSecret }}{{ $secure.tlsSecret }}
{{- else if $secure.certManager.enabled }}{{ include "ullage.fullname" . }}-metrics
{{- else }}{{ fail "monitoring.secureMetrics: name a Secret with tls.crt and tls.key as tlsSecret, or set certManager.enabled" }}
{{- end }}
{{- end }}

{{- /* Settings of metrics over TLS: (list root prefix port). */ -}}
{{- define "ullage.metricsSettings" -}}
{{- if (index . 0).Values.monitoring.secureMetrics.enabled -}}
- name: {{ index . 1 }}_HTTP_METRICS_PORT
  value: {{ index . 2 | quote }}
{{- end }}
{{- end }}

{{- define "ullage.metricsPort" -}}
{{- if (index . 0).Values.monitoring.secureMetrics.enabled -}}
- {name: metrics, containerPort: {{ index . 1 }}}
{{- end }}
{{- end }}

{{- define "ullage.metricsMount" -}}
{{- if .Values.monitoring.secureMetrics.enabled -}}
- {name: metrics-certificate, mountPath: /etc/ullage/metrics, readOnly: true}
{{- end }}
{{- end }}

{{- define "ullage.metricsVolume" -}}
{{- if .Values.monitoring.secureMetrics.enabled -}}
- name: metrics-certificate
  secret:
    secretName: {{ include "ullage.metricsSecret" . }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    # without it the pod works, and serves no metrics
    optional: true
{{- end }}
{{- end }}
