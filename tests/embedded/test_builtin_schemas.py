from partita.validation.builtin_schemas import compiled_schemas


def test_schemas_may_refer_to_themselves():
    crd = compiled_schemas()["apiextensions.k8s.io/v1", "CustomResourceDefinition"]
    version = crd.child("spec").child("versions").items
    schema = version.child("schema").child("openAPIV3Schema")
    assert schema.child("properties").child("any") is schema
