{{- /*
SPDX-FileCopyrightText: The Ullage Authors
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{- define "ullage.labels" -}}
app.kubernetes.io/name: ullage
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "ullage.selector" -}}
app.kubernetes.io/name: ullage
app.kubernetes.io/instance: {{ .Release.Name }}
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
