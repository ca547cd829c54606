{{- /* The key of ConfigMap ankka-platform and the variable of each setting. These six, of the cloud, a provider gets too. */ -}}
{{- define "radial.cloudKeys" -}}
cloudProvider: ANKKA_CLOUD_PROVIDER
cloudAccount: ANKKA_CLOUD_ACCOUNT
cloudLocation: ANKKA_CLOUD_LOCATION
cloudKmsKey: ANKKA_CLOUD_KMS_KEY
cloudAcknowledgementBound: ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND
cloudRotationGrace: ANKKA_CLOUD_ROTATION_GRACE
{{- end -}}

{{- define "radial.choiceKeys" -}}
objectStorage: ANKKA_OBJECT_STORAGE
projectSecrets: ANKKA_PROJECT_SECRETS
backups: ANKKA_BACKUPS
keyring: ANKKA_KEYRING
objectStorageNamePrefix: ANKKA_OBJECT_STORAGE_NAME_PREFIX
{{- end -}}

{{- /* All of them as variables of a container, each once. */ -}}
{{- define "radial.platformEnv" -}}
{{- $platform := .Values.services.platform -}}
{{- range $part := list "radial.cloudKeys" "radial.choiceKeys" -}}
{{- range $key, $variable := include $part $ | fromYaml }}
- {name: {{ $variable }}, value: {{ get $platform $key | quote }}}
{{- end -}}
{{- end -}}
{{- end -}}
