{{- define "promptguard.labels" -}}
app.kubernetes.io/name: promptguard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "promptguard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end }}
