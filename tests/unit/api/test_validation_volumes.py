"""Each rule for volumes refuses what breaks it, with path and reason."""

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., list[str]]

_SUBDOMAIN = (
    "must consist of lower-case letters, digits, '-' and '.', "
    "and each part must start and end with a letter or digit"
)
_MODE = "must be a file mode between 0 and 0777 (octal), 511 in decimal"


def test_names_are_set_unique_and_dns_labels(judge: Judge) -> None:
    source: dict[str, Any] = {"emptyDir": {}}
    names = ["a", "a", "", "A"]
    assert judge({"volumes": [{"name": name, **source} for name in names]}) == [
        'spec.volumes[1].name: duplicate value "a"',
        "spec.volumes[2].name: required",
        (
            'spec.volumes[3].name: invalid value "A": must consist of lower-case letters, digits '
            "and '-', and start and end with a letter or digit"
        ),
    ]


def test_a_volume_has_one_type(judge: Judge) -> None:
    volume = {"name": "v", "hostPath": {"path": "/"}, "emptyDir": {}, "nfs": {}}
    assert judge({"volumes": [volume]})[:2] == [
        "spec.volumes[0].emptyDir: forbidden: may not have more than one volume type",
        "spec.volumes[0].nfs: forbidden: may not have more than one volume type",
    ]


_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("source", "errors"),
    [
        ({"hostPath": {"path": "relative", "type": "Directory"}}, []),
        ({"hostPath": {}}, ["hostPath.path: required"]),
        (
            {"hostPath": {"path": "/a/../b"}},
            ["hostPath.path: invalid value \"/a/../b\": must not contain '..'"],
        ),
        ({"hostPath": {"path": "/a/..b"}}, []),
        ({"emptyDir": {"sizeLimit": "0"}}, []),
        (
            {"emptyDir": {"sizeLimit": "-1"}},
            ['emptyDir.sizeLimit: invalid value "-1": must not be negative'],
        ),
        (
            {"secret": {"defaultMode": 0o1000, "items": [{"key": "k", "path": "..p", "mode": -1}]}},
            [
                "secret.secretName: required",
                f"secret.defaultMode: invalid value 512: {_MODE}",
                "secret.items[0].path: invalid value \"..p\": must not start with '..'",
                f"secret.items[0].mode: invalid value -1: {_MODE}",
            ],
        ),
        (
            {"configMap": {"name": "A", "items": [{}]}},
            [
                f'configMap.name: invalid value "A": {_SUBDOMAIN}',
                "configMap.items[0].key: required",
                "configMap.items[0].path: required",
            ],
        ),
        (
            {"configMap": {"name": "a", "items": [{"key": "k", "path": "/p"}]}},
            ['configMap.items[0].path: invalid value "/p": must be a relative path'],
        ),
        (
            {
                "downwardAPI": {
                    "items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                        {"path": "none"},
                        {
                            "path": "both",
                            "fieldRef": {"fieldPath": "metadata.name"},
                            "resourceFieldRef": {"resource": "limits.cpu"},
                        },
                    ]
                }
            },
            [
                "downwardAPI.items[1]: required: one of fieldRef, resourceFieldRef",
                (
                    'downwardAPI.items[2]: invalid value "both": '
                    "may not have both fieldRef and resourceFieldRef"
                ),
                "downwardAPI.items[2].resourceFieldRef.containerName: required",
            ],
        ),
        ({"persistentVolumeClaim": {}}, ["persistentVolumeClaim.claimName: required"]),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}}}, []),
        ({"ephemeral": {}}, ["ephemeral.volumeClaimTemplate: required"]),
        (
            {"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"": "a"}}, "spec": {}}}},
            [
                "ephemeral.volumeClaimTemplate.metadata.labels[]: required",
                "ephemeral.volumeClaimTemplate.spec.accessModes: required: at least one",
                "ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: required",
            ],
        ),
        ({"csi": {"driver": "A.b"}}, []),
        (
            {"csi": {"driver": "", "nodePublishSecretRef": {}}},
            ["csi.driver: required", "csi.nodePublishSecretRef.name: required"],
        ),
        ({"image": {"reference": "a"}}, []),
        (
            {"image": {"pullPolicy": "x"}},
            [
                "image.reference: required",
                (
                    'image.pullPolicy: unsupported value "x": '
                    'supported values: "Always", "IfNotPresent", "Never"'
                ),
            ],
        ),
    ],
)
def test_sources(judge: Judge, source: dict[str, Any], errors: list[str]) -> None:
    expected = [f"spec.volumes[0].{error}" for error in errors]
    assert judge({"volumes": [{"name": "v", **source}]}) == expected


def test_host_path_types_are_listed(judge: Judge) -> None:
    [message] = judge({"volumes": [{"name": "v", "hostPath": {"path": "/", "type": "x"}}]})
    assert message == (
        'spec.volumes[0].hostPath.type: unsupported value "x": supported values: "", '
        '"DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", '
        '"BlockDevice"'
    )


@pytest.mark.parametrize(
    ("parts", "errors"),
    [
        (
            [
                {"serviceAccountToken": {"path": "token"}},
                {"secret": {"name": "s"}},
                {"clusterTrustBundle": {"name": "n", "path": "ca"}},
                {
                    "podCertificate": {
                        "signerName": "a.b/c",
                        "keyType": "ED25519",
                        "keyPath": "k",
                        "maxExpirationSeconds": 3600,
                    }
                },
            ],
            [],
        ),
        (
            [{}],
            [
                (
                    "[0]: required: one of secret, downwardAPI, configMap, serviceAccountToken, "
                    "clusterTrustBundle, podCertificate"
                )
            ],
        ),
        (
            [{"secret": {"name": "s"}, "configMap": {}}],
            [
                "[0].configMap: forbidden: may not have more than one source",
                "[0].configMap.name: required",
            ],
        ),
        (
            [{"serviceAccountToken": {"expirationSeconds": 599}}],
            [
                "[0].serviceAccountToken.path: required",
                (
                    "[0].serviceAccountToken.expirationSeconds: invalid value 599: "
                    "must be between 600 and 4294967296"
                ),
            ],
        ),
        (
            [{"clusterTrustBundle": {"path": "a", "labelSelector": {}}}],
            [
                "[0].clusterTrustBundle: required: exactly one of name, signerName",
                '[0].clusterTrustBundle.labelSelector: invalid value "": needs signerName',
            ],
        ),
        (
            [{"podCertificate": {"maxExpirationSeconds": 1, "userAnnotations": {"": "a"}}}],
            [
                "[0].podCertificate.signerName: required",
                (
                    "[0].podCertificate.keyType: required: supported values: "
                    "RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521, ED25519"
                ),
                (
                    "[0].podCertificate.maxExpirationSeconds: invalid value 1: "
                    "must be between 3600 and 7862400"
                ),
                (
                    "[0].podCertificate: required: "
                    "one of credentialBundlePath, keyPath, certificateChainPath"
                ),
                "[0].podCertificate.userAnnotations[]: required",
            ],
        ),
        (
            [
                {"serviceAccountToken": {"path": "a"}},
                {"configMap": {"name": "m", "items": [{"key": "k", "path": "a"}]}},
            ],
            ['[1]: duplicate value "a"'],
        ),
    ],
)
def test_projected_volumes(judge: Judge, parts: list[Any], errors: list[str]) -> None:
    volume = {"name": "v", "projected": {"sources": parts}}
    prefix = "spec.volumes[0].projected.sources"
    assert judge({"volumes": [volume]}) == [f"{prefix}{error}" for error in errors]


@pytest.mark.parametrize(
    ("source", "errors"),
    [
        ({"nfs": {"server": "s", "path": "/p"}}, []),
        (
            {"nfs": {"path": "p"}},
            ["server: required", 'path: invalid value "p": must be an absolute path'],
        ),
        ({"iscsi": {"targetPortal": "t", "iqn": "iqn.x"}}, []),
        (
            {"iscsi": {"iqn": "x", "lun": 256, "chapAuthSession": True}},
            [
                "targetPortal: required",
                'iqn: invalid value "x": must start with iqn, eui or naa',
                "lun: invalid value 256: must be between 0 and 255",
                "secretRef: required: CHAP authentication needs it",
            ],
        ),
        ({"fc": {"wwids": ["w"]}}, []),
        ({"fc": {}}, ["targetWWNs: required: one of targetWWNs, wwids"]),
        ({"fc": {"targetWWNs": ["w"]}}, ["lun: required: targetWWNs need it"]),
        (
            {"fc": {"targetWWNs": ["w"], "wwids": ["w"]}},
            ['targetWWNs: invalid value "w": may not be set with wwids'],
        ),
        (
            {"gitRepo": {"directory": ".."}},
            ["repository: required", "directory: invalid value \"..\": must not contain '..'"],
        ),
        ({"flocker": {}}, [" required: one of datasetName, datasetUUID"]),
        (
            {"flocker": {"datasetName": "a/b", "datasetUUID": "u"}},
            [
                ' invalid value "a/b": may not have both datasetName and datasetUUID',
                "datasetName: invalid value \"a/b\": must not contain '/'",
            ],
        ),
        ({"quobyte": {"registry": "a:1,b:2", "volume": "v"}}, []),
        (
            {"quobyte": {"registry": "a"}},
            [
                "volume: required",
                'registry: invalid value "a": must be host:port, joined by commas',
            ],
        ),
        (
            {"azureDisk": {"cachingMode": "x", "kind": "y"}},
            [
                "diskName: required",
                "diskURI: required",
                (
                    'cachingMode: unsupported value "x": '
                    'supported values: "None", "ReadOnly", "ReadWrite"'
                ),
                'kind: unsupported value "y": supported values: "Shared", "Dedicated", "Managed"',
            ],
        ),
        ({"storageos": {}}, ["volumeName: required"]),
        (
            {"glusterfs": {"path": ".."}},
            ["endpoints: required", "path: invalid value \"..\": must not contain '..'"],
        ),
        (
            {"awsElasticBlockStore": {"partition": -1}},
            ["volumeID: required", "partition: invalid value -1: must be between 0 and 255"],
        ),
        ({"gcePersistentDisk": {}}, ["pdName: required"]),
        ({"azureFile": {}}, ["secretName: required", "shareName: required"]),
        ({"cephfs": {"secretRef": {}}}, ["monitors: required", "secretRef.name: required"]),
        ({"cinder": {}}, ["volumeID: required"]),
        ({"flexVolume": {}}, ["driver: required"]),
        ({"photonPersistentDisk": {}}, ["pdID: required"]),
        ({"portworxVolume": {}}, ["volumeID: required"]),
        ({"rbd": {}}, ["monitors: required", "image: required"]),
        ({"scaleIO": {}}, ["gateway: required", "system: required", "volumeName: required"]),
        ({"vsphereVolume": {}}, ["volumePath: required"]),
    ],
)
def test_network_and_cloud_volumes(judge: Judge, source: dict[str, Any], errors: list[str]) -> None:
    [kind] = source
    path = f"spec.volumes[0].{kind}"
    expected = [f"{path}:{e}" if e.startswith(" ") else f"{path}.{e}" for e in errors]
    assert judge({"volumes": [{"name": "v", **source}]}) == expected
