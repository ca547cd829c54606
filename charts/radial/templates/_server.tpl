{{- /* The configuration file of the server's processes; only flags tell API and workers apart. */ -}}
{{- define "radial.config" -}}
{{- $config := dict
    "listen" "0.0.0.0:8443"
    "metricsListen" "0.0.0.0:9090"
    "cluster" .Values.cluster
    "log" (dict "level" .Values.server.log.level "format" .Values.server.log.format)
    "workerServer" (dict "maxOperationConcurrency" (int .Values.workerServer.maxOperationConcurrency)) -}}
{{- if eq .Values.store.kind "sqlite" }}{{ $_ := set $config "store" "sqlite:/var/lib/radial/radial.db" }}{{ end -}}
{{- if .Values.keys.existingSecret }}{{ $_ := set $config "key" "file:///etc/radial/key/key" }}{{ else }}{{ $_ := set $config "keyFile" "/var/lib/radial/key" }}{{ end -}}
{{- if .Values.server.tls.existingSecret -}}
{{- $_ := set $config "tlsCertFile" "/etc/radial/tls/tls.crt" }}{{ $_ := set $config "tlsKeyFile" "/etc/radial/tls/tls.key" -}}
{{- else -}}
{{- /* The Secret is shared by all replicas; the server publishes its authority as the ConfigMap radial-server-tls-ca. */ -}}
{{- $_ := set $config "tlsSelfMade" (printf "secret:%s/radial-server-tls" .Release.Namespace) -}}
{{- $_ := set $config "tlsNames" (concat (list (printf "radial-server.%s.svc" .Release.Namespace) (printf "radial-server.%s.svc.cluster.local" .Release.Namespace) "localhost" "127.0.0.1") .Values.server.tls.names) -}}
{{- end -}}
{{- if .Values.server.aggregation.enabled }}{{ $_ := set $config "aggregate" (printf "%s/radial-server:%d" .Release.Namespace (int .Values.server.service.port)) }}{{ end -}}
{{- if .Values.controller.enabled }}{{ $_ := set $config "controllers" (list (printf "%s=serviceAccount:%s/radial-controller" .Values.cluster .Release.Namespace)) }}{{ end -}}
{{- with .Values.server.extensions -}}
{{- $list := list -}}
{{- range $i, $x := . -}}
{{- $one := pick $x "name" "version" "url" -}}
{{- if $x.caConfigMap }}{{ $_ := set $one "caFile" (printf "/etc/radial/extensions/%d-ca/ca.crt" $i) }}{{ end -}}
{{- if $x.tokenSecret }}{{ $_ := set $one "tokenFile" (printf "/etc/radial/extensions/%d-token/token" $i) }}{{ end -}}
{{- $list = append $list $one -}}
{{- end -}}
{{- $_ := set $config "extensions" $list -}}
{{- end -}}
{{- with .Values.server.memberClusters -}}
{{- $list := list -}}
{{- range . }}{{ $list = append $list (printf "%s=/etc/radial/clusters/%s/kubeconfig" .name .name) }}{{ end -}}
{{- $_ := set $config "memberCluster" $list -}}
{{- end -}}
{{- with .Values.server.azure.scopes }}{{ $_ := set $config "azureScopes" . }}{{ end -}}
{{- with .Values.server.azure.endpoint }}{{ $_ := set $config "azureEndpoint" . }}{{ end -}}
{{- range $k, $v := .Values.server.config }}
{{- if and (kindIs "map" $v) (hasKey $config $k) }}{{ $_ := set $config $k (merge (deepCopy $v) (get $config $k)) }}{{ else }}{{ $_ := set $config $k $v }}{{ end -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{- /* One Deployment of the server: name, replicas, args, and the values that place it. */ -}}
{{- define "radial.serverDeployment" -}}
{{- $root := .root -}}
{{- $sqlite := eq $root.Values.store.kind "sqlite" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "radial.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  revisionHistoryLimit: 5
  selector:
    matchLabels: {{- include "radial.selector" . | nindent 6 }}
  strategy:
    {{- if $sqlite }}
    # One process at a time opens the file.
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "radial.labels" . | nindent 8 }}
        {{- if $root.Values.server.azure.workloadIdentity }}
        azure.workload.identity/use: "true"
        {{- end }}
      annotations:
        radapp.io/config-hash: {{ include "radial.config" $root | sha256sum | trunc 16 }}
        {{- with $root.Values.server.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: radial-server
      automountServiceAccountToken: true
      enableServiceLinks: false
      terminationGracePeriodSeconds: 60
      securityContext: {{- include "radial.podSecurity" $root | nindent 8 }}
      {{- include "radial.pullSecrets" $root | nindent 6 }}
      {{- include "radial.placement" .place | nindent 6 }}
      containers:
        - name: server
          image: {{ include "radial.image" (dict "root" $root "name" "radial-server") }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [--config, /etc/radial/config/config.yaml{{ range .args }}, {{ . | quote }}{{ end }}]
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            {{- if not $sqlite }}
            - name: RADIAL_STORE
              valueFrom:
                secretKeyRef: {name: {{ $root.Values.store.postgres.existingSecret }}, key: {{ $root.Values.store.postgres.key }}}
            {{- end }}
            {{- with $root.Values.server.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            {{- if $root.Values.services.enabled }}
            {{- include "radial.platformEnv" $root | nindent 12 }}
            {{- end }}
          ports:
            - {name: api, containerPort: 8443}
            - {name: operator, containerPort: 9090}
          {{- include "radial.probes" (dict "port" "operator" "scheme" "HTTPS") | nindent 10 }}
          lifecycle:
            # Endpoints need a moment to forget the pod.
            preStop: {sleep: {seconds: 5}}
          resources: {{- toYaml .resources | nindent 12 }}
          securityContext: {{- include "radial.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: /etc/radial/config, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- if $sqlite }}
            - {name: store, mountPath: /var/lib/radial}
            {{- end }}
            {{- if $root.Values.keys.existingSecret }}
            - {name: key, mountPath: /etc/radial/key, readOnly: true}
            {{- end }}
            {{- if $root.Values.server.tls.existingSecret }}
            - {name: tls, mountPath: /etc/radial/tls, readOnly: true}
            {{- end }}
            {{- range $i, $x := $root.Values.server.extensions }}
            {{- if $x.caConfigMap }}
            - {name: extension-{{ $i }}-ca, mountPath: /etc/radial/extensions/{{ $i }}-ca, readOnly: true}
            {{- end }}
            {{- if $x.tokenSecret }}
            - {name: extension-{{ $i }}-token, mountPath: /etc/radial/extensions/{{ $i }}-token, readOnly: true}
            {{- end }}
            {{- end }}
            {{- range $root.Values.server.memberClusters }}
            - {name: cluster-{{ .name }}, mountPath: /etc/radial/clusters/{{ .name }}, readOnly: true}
            {{- end }}
      volumes:
        - name: config
          configMap: {name: radial-server}
        {{- range $root.Values.server.memberClusters }}
        - name: cluster-{{ .name }}
          secret: {secretName: {{ .kubeconfigSecret }}, defaultMode: 0440}
        {{- end }}
        - name: tmp
          emptyDir: {sizeLimit: 1Gi}
        {{- if $sqlite }}
        - name: store
          persistentVolumeClaim: {claimName: {{ $root.Values.store.sqlite.existingClaim | default "radial-store" }}}
        {{- end }}
        {{- with $root.Values.keys.existingSecret }}
        - name: key
          secret:
            secretName: {{ . }}
            defaultMode: 0440
            items: [{key: {{ $root.Values.keys.key }}, path: key}]
        {{- end }}
        {{- with $root.Values.server.tls.existingSecret }}
        - name: tls
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- range $i, $x := $root.Values.server.extensions }}
        {{- with $x.caConfigMap }}
        - name: extension-{{ $i }}-ca
          configMap: {name: {{ . }}}
        {{- end }}
        {{- with $x.tokenSecret }}
        - name: extension-{{ $i }}-token
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- end }}
{{- end -}}
